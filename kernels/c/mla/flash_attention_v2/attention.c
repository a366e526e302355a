/* flash_attention v2: vectorised by hand, threaded, split over the keys where there are too few blocks.
 *
 * What differs from v1: tiles, register blocks and vectors are chosen by tuning (see tiles.h for the two kernels in
 * registers); several queries share every loaded key; blocks of queries go to all cores; and where requests times
 * heads are fewer than the cores can use, the keys are split among blocks, each of which leaves a partial result and
 * the logarithm of its sum of exponentials for the stage `merge`. */
#define SCORE_DIMS (D + P)
#define VALUE_DIMS D
#include "../../common/tiles.h"

/* At most BLOCK_M queries, from BLOCK_M * row_block on, of one head of one request (`block` counts the b * h of them),
 * over the keys of split `split` of `splits`.
 *
 * q [b,h,s,d], qpe [b,h,s,p], key and value [b,t,h,d], kpe [b,t,p] (shared by the heads). A single split writes
 * o [b,h,s,d]; several write part [splits,b,h,s,d] and lse [splits,b,h,s]. */
void attention(const element *q, const element *qpe, const element *key, const element *value, const element *kpe,
               element *o, float *part, float *lse, int64_t b, int64_t s, int64_t t, int64_t h, double scale,
               int64_t causal, int64_t splits, int64_t group, int64_t row_block, int64_t split)
{
    struct block block;
    int64_t request = group / h, head = group % h;
    int64_t first = row_block * BLOCK_M;
    int64_t rows = min(BLOCK_M, s - first);
    int64_t first_row = group * s + first;

    begin_block(&block, rows);
    for (int64_t r = 0; r < rows; r++)
        load_query(&block, r, q + (first_row + r) * D, D, qpe + (first_row + r) * P, P, (float)scale);

    /* Keys that the first and the last query of this block see; negative where s > t. */
    int64_t seen_by_first = causal ? t - s + first + 1 : t;
    int64_t seen_by_last = causal ? seen_by_first + rows - 1 : t;
    int64_t tiles = (t + BLOCK_T - 1) / BLOCK_T;
    int64_t start = tiles * split / splits * BLOCK_T;
    int64_t end = min(tiles * (split + 1) / splits * BLOCK_T, seen_by_last);
    for (; start < end; start += BLOCK_T) {
        int64_t present = min(BLOCK_T, t - start);
        for (int64_t j = 0; j < present; j++) {
            int64_t token = request * t + start + j;
            copy_row(block.key[j], key + (token * h + head) * D, D, D);
            copy_row(block.key[j] + D, kpe + token * P, P, SCORE_STRIDE - D);
            copy_row(block.value[j], value + (token * h + head) * D, D, VALUE_STRIDE);
        }
        pad_tile(&block, present);
        for (int64_t row = 0; row < rows; row += ROWS) {
            int64_t visible[ROWS];
            for (int64_t r = 0; r < ROWS; r++)
                visible[r] = min(present, causal ? seen_by_first + row + r - start : present);
            meet_tile(&block, row, visible);
        }
    }

    for (int64_t r = 0; r < rows; r++) {
        float factor = normaliser(&block, r);
        if (splits == 1) {
            element *to = o + (first_row + r) * D;
            for (int64_t x = 0; x < D; x++)
                to[x] = from_float(block.sum[r][x] * factor);
        } else {
            int64_t row = split * b * h * s + first_row + r;
            for (int64_t x = 0; x < D; x++)
                part[row * D + x] = block.sum[r][x] * factor;
            lse[row] = log_sum_exp(&block, r);
        }
    }
}
