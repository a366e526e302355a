/* mla_var6_plus v2, stage decompressed: attention over the new tokens, vectorised by hand, threaded.
 *
 * What differs from v1: tiles, register blocks and vectors are chosen by tuning (see tiles.h for the two kernels in
 * registers); several queries share every loaded key; a block takes several heads, whose keys lie side by side, as
 * single rows h * d elements apart would each cost a page walk; blocks go to the cores that the stage latent leaves
 * free. New tokens are few, so they are not split among blocks. */
#define SCORE_DIMS (D + P)
#define VALUE_DIMS D
#include "../../common/tiles.h"

/* Tokens between the one being copied and the one asked for: single rows defeat the hardware's own prefetching. */
#define AHEAD 8

/* At most BLOCK_M queries, from BLOCK_M * row_block on, of HEADS heads of one request (`group` counts these), over the
 * last n of t tokens.
 *
 * q [b,h,s,d], qpe [b,h,s,p], key_new and value_new [b,n,h,d], kpe [b,t,p], fresh [b,h,s,d], lse [b,h,s]. */
void decompressed(const element *q, const element *qpe, const element *key_new, const element *value_new,
                  const element *kpe, float *fresh, float *lse, int64_t s, int64_t t, int64_t n, int64_t h,
                  double scale, int64_t causal, int64_t group, int64_t row_block)
{
    struct block blocks[HEADS];
    int64_t groups = (h + HEADS - 1) / HEADS;
    int64_t request = group / groups;
    int64_t first_head = group % groups * HEADS, heads = min(HEADS, h - first_head);
    int64_t first = row_block * BLOCK_M, rows = min(BLOCK_M, s - first);

    for (int64_t i = 0; i < heads; i++) {
        int64_t row = (request * h + first_head + i) * s + first;
        begin_block(&blocks[i], rows);
        for (int64_t r = 0; r < rows; r++)
            load_query(&blocks[i], r, q + (row + r) * D, D, qpe + (row + r) * P, P, (float)scale);
    }

    /* New tokens that the first and the last query of this block see; negative where s > n. */
    int64_t seen_by_first = causal ? n - s + first + 1 : n;
    int64_t seen_by_last = causal ? seen_by_first + rows - 1 : n;
    for (int64_t start = 0; start < seen_by_last; start += BLOCK_T) {
        int64_t present = min(BLOCK_T, n - start);
        int64_t token = request * n + start;
        const element *rotary = kpe + (request * t + t - n + start) * P;
        for (int64_t j = 0; j < present; j++) {
            int64_t row = (token + j) * h + first_head;
            int64_t ahead = (request * n + min(start + j + AHEAD, n - 1)) * h + first_head;
            for (int64_t i = 0; i < heads; i++) {
                float *to = blocks[i].key[j];
                expect_row(key_new + (ahead + i) * D, D);
                copy_row(to, key_new + (row + i) * D, D, D);
                copy_row(to + D, rotary + j * P, P, SCORE_STRIDE - D);
            }
        }
        for (int64_t j = 0; j < present; j++) {
            int64_t row = (token + j) * h + first_head;
            int64_t ahead = (request * n + min(start + j + AHEAD, n - 1)) * h + first_head;
            for (int64_t i = 0; i < heads; i++) {
                expect_row(value_new + (ahead + i) * D, D);
                copy_row(blocks[i].value[j], value_new + (row + i) * D, D, VALUE_STRIDE);
            }
        }
        int64_t seen[BLOCK_M];
        for (int64_t r = 0; r < BLOCK_M; r++)
            seen[r] = causal ? min(present, seen_by_first + r - start) : present;
        for (int64_t i = 0; i < heads; i++) {
            pad_tile(&blocks[i], present);
            meet_tile(&blocks[i], rows, seen);
        }
    }

    for (int64_t i = 0; i < heads; i++)
        for (int64_t r = 0; r < rows; r++) {
            int64_t row = (request * h + first_head + i) * s + first + r;
            lse[row] = store_part(&blocks[i], r, fresh + row * D);
        }
}
