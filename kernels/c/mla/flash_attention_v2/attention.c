/* flash_attention v2: vectorised by hand, threaded, split over the keys where there are too few blocks.
 *
 * What differs from v1: tiles, register blocks and vectors are chosen by tuning (see tiles.h for the two kernels in
 * registers); several queries share every loaded key; a block takes several heads, whose keys lie side by side, as
 * single rows h * d elements apart would each cost a page walk; blocks go to all cores; and where they are fewer than
 * the cores can use, the keys are split among blocks, each of which leaves a partial result and the logarithm of its
 * sum of exponentials for the stage `merge`. */
#define SCORE_DIMS (D + P)
#define VALUE_DIMS D
#include "../../common/tiles.h"

/* Tokens between the one being copied and the one asked for: single rows defeat the hardware's own prefetching. */
#define AHEAD 8

/* At most BLOCK_M queries, from BLOCK_M * row_block on, of HEADS heads of one request (`group` counts these), over the
 * keys of split `split` of `splits`.
 *
 * q [b,h,s,d], qpe [b,h,s,p], key and value [b,t,h,d], kpe [b,t,p] (shared by the heads). A single split writes
 * o [b,h,s,d]; several write part [splits,b,h,s,d] and lse [splits,b,h,s]. */
void attention(const element *q, const element *qpe, const element *key, const element *value, const element *kpe,
               element *o, float *part, float *lse, int64_t b, int64_t s, int64_t t, int64_t h, double scale,
               int64_t causal, int64_t splits, int64_t group, int64_t row_block, int64_t split)
{
    struct block blocks[HEADS];
    int64_t groups = (h + HEADS - 1) / HEADS;
    int64_t request = group / groups;
    int64_t first_head = group % groups * HEADS, heads = min(HEADS, h - first_head);
    int64_t first = row_block * BLOCK_M, rows = min(BLOCK_M, s - first);

    for (int64_t n = 0; n < heads; n++) {
        int64_t row = (request * h + first_head + n) * s + first;
        begin_block(&blocks[n], rows);
        for (int64_t r = 0; r < rows; r++)
            load_query(&blocks[n], r, q + (row + r) * D, D, qpe + (row + r) * P, P, (float)scale);
    }

    /* Keys that the first and the last query of this block see; negative where s > t. */
    int64_t seen_by_first = causal ? t - s + first + 1 : t;
    int64_t seen_by_last = causal ? seen_by_first + rows - 1 : t;
    int64_t tiles = (t + BLOCK_T - 1) / BLOCK_T;
    int64_t start = tiles * split / splits * BLOCK_T;
    int64_t end = min(tiles * (split + 1) / splits * BLOCK_T, seen_by_last);
    for (; start < end; start += BLOCK_T) {
        int64_t present = min(BLOCK_T, t - start);
        int64_t token = request * t + start;
        for (int64_t j = 0; j < present; j++) {
            int64_t row = (token + j) * h + first_head;
            int64_t ahead = (request * t + min(start + j + AHEAD, t - 1)) * h + first_head;
            for (int64_t n = 0; n < heads; n++) {
                float *to = blocks[n].key[j];
                expect_row(key + (ahead + n) * D, D);
                copy_row(to, key + (row + n) * D, D, D);
                copy_row(to + D, kpe + (token + j) * P, P, SCORE_STRIDE - D);
            }
        }
        for (int64_t j = 0; j < present; j++) {
            int64_t row = (token + j) * h + first_head;
            int64_t ahead = (request * t + min(start + j + AHEAD, t - 1)) * h + first_head;
            for (int64_t n = 0; n < heads; n++) {
                expect_row(value + (ahead + n) * D, D);
                copy_row(blocks[n].value[j], value + (row + n) * D, D, VALUE_STRIDE);
            }
        }
        int64_t seen[BLOCK_M];
        for (int64_t r = 0; r < BLOCK_M; r++)
            seen[r] = causal ? min(present, seen_by_first + r - start) : present;
        for (int64_t n = 0; n < heads; n++) {
            pad_tile(&blocks[n], present);
            meet_tile(&blocks[n], rows, seen);
        }
    }

    for (int64_t n = 0; n < heads; n++)
        for (int64_t r = 0; r < rows; r++) {
            int64_t row = (request * h + first_head + n) * s + first + r;
            if (splits == 1) {
                store_result(&blocks[n], r, o + row * D);
            } else {
                row += split * b * h * s;
                lse[row] = store_part(&blocks[n], r, part + row * D);
            }
        }
}
