/* mla_var6_plus v1, stage decompressed: attention over the new tokens, in blocks, online softmax, one thread.
 *
 * What differs from v0: a block of keys and values is copied close to the core once and then serves up to ROWS
 * queries, scores never leave the stack, and the inner loops vectorise (see blocked.h). */
#include <stdint.h>

#define SCORE_DIMS (D + P)
#define VALUE_DIMS D
#define ROWS 64
#define KEYS 16
#include "../../common/blocked.h"

/* At most ROWS queries, from ROWS * row_block on, of one head of one request (`block` counts the b * h of them), over
 * the last n of t tokens.
 *
 * q [b,h,s,d], qpe [b,h,s,p], key_new and value_new [b,n,h,d], kpe [b,t,p], fresh [b,h,s,d]; lse [b,h,s] becomes the
 * logarithm of the sum of exponentials of a query's scores, -infinity where it sees none of these tokens. */
void decompressed(const element *q, const element *qpe, const element *key_new, const element *value_new,
                  const element *kpe, float *fresh, float *lse, int64_t s, int64_t t, int64_t n, int64_t h,
                  double scale, int64_t causal, int64_t block, int64_t row_block)
{
    struct queries state;
    float keys[KEYS][SCORE_DIMS];
    float values[KEYS][VALUE_DIMS];
    int64_t request = block / h, head = block % h;
    int64_t first = row_block * ROWS;
    int64_t first_row = block * s + first;
    int64_t rows = min(ROWS, s - first);

    begin_queries(&state, rows);
    for (int64_t r = 0; r < rows; r++)
        load_query(&state, r, q + (first_row + r) * D, D, qpe + (first_row + r) * P, P, (float)scale);

    /* New tokens that the first and the last query of this block see; negative where s > n. */
    int64_t seen_by_first = causal ? n - s + first + 1 : n;
    int64_t seen_by_last = causal ? seen_by_first + rows - 1 : n;
    for (int64_t start = 0; start < seen_by_last; start += KEYS) {
        int64_t present = min(KEYS, n - start);
        for (int64_t j = 0; j < present; j++) {
            int64_t row = (request * n + start + j) * h + head;
            copy_row(keys[j], key_new + row * D, D);
            copy_row(keys[j] + D, kpe + (request * t + t - n + start + j) * P, P);
            copy_row(values[j], value_new + row * D, D);
        }
        for (int64_t j = present; j < KEYS; j++) {
            fill_zero(keys[j], SCORE_DIMS);
            fill_zero(values[j], VALUE_DIMS);
        }
        for (int64_t r = 0; r < rows; r++) {
            int64_t seen = causal ? seen_by_first + r : n;
            meet_keys(&state, r, min(present, seen - start), keys, values[0], VALUE_DIMS);
        }
    }

    for (int64_t r = 0; r < rows; r++) {
        float factor = normaliser(&state, r);
        for (int64_t x = 0; x < D; x++)
            fresh[(first_row + r) * D + x] = state.sum[r][x] * factor;
        lse[first_row + r] = log_sum_exp(&state, r);
    }
}
