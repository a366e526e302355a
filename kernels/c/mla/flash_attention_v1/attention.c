/* flash_attention v1: blocks of queries and keys, online softmax, one thread.
 *
 * What differs from v0: a block of keys and values is copied close to the core once and then serves up to ROWS
 * queries, scores never leave the stack, and every inner loop is one that the compiler vectorises (see blocked.h).
 * The block sizes are fixed: 16 keys and values of 320 floats are 20 KiB and stay in a first-level cache, 64 queries
 * with their sums are 80 KiB, well inside a second-level cache. */
#include <stdint.h>

#define SCORE_DIMS (D + P)
#define VALUE_DIMS D
#define ROWS 64
#define KEYS 16
#include "../../common/blocked.h"

/* At most ROWS queries, from ROWS * row_block on, of one head of one request; `block` counts the b * h of them.
 *
 * q [b,h,s,d], qpe [b,h,s,p], key and value [b,t,h,d], kpe [b,t,p] (shared by the heads), o [b,h,s,d]. */
void attention(const element *q, const element *qpe, const element *key, const element *value, const element *kpe,
               element *o, int64_t s, int64_t t, int64_t h, double scale, int64_t causal, int64_t block,
               int64_t row_block)
{
    struct queries state;
    float keys[KEYS][SCORE_DIMS];
    float values[KEYS][VALUE_DIMS];
    int64_t request = block / h, head = block % h;
    int64_t first_row = block * s + row_block * ROWS;
    int64_t first = row_block * ROWS;
    int64_t rows = min(ROWS, s - first);

    begin_queries(&state, rows);
    for (int64_t r = 0; r < rows; r++)
        load_query(&state, r, q + (first_row + r) * D, D, qpe + (first_row + r) * P, P, (float)scale);

    /* Keys that the first and the last query of this block see; negative where s > t. */
    int64_t seen_by_first = causal ? t - s + first + 1 : t;
    int64_t seen_by_last = causal ? seen_by_first + rows - 1 : t;
    for (int64_t start = 0; start < seen_by_last; start += KEYS) {
        int64_t present = min(KEYS, t - start);
        for (int64_t j = 0; j < present; j++) {
            int64_t token = request * t + start + j;
            copy_row(keys[j], key + (token * h + head) * D, D);
            copy_row(keys[j] + D, kpe + token * P, P);
            copy_row(values[j], value + (token * h + head) * D, D);
        }
        for (int64_t j = present; j < KEYS; j++) {
            fill_zero(keys[j], SCORE_DIMS);
            fill_zero(values[j], VALUE_DIMS);
        }
        for (int64_t r = 0; r < rows; r++) {
            int64_t seen = causal ? seen_by_first + r : t;
            meet_keys(&state, r, min(present, seen - start), keys, values[0], VALUE_DIMS);
        }
    }

    for (int64_t r = 0; r < rows; r++) {
        float factor = normaliser(&state, r);
        for (int64_t x = 0; x < D; x++)
            o[(first_row + r) * D + x] = from_float(state.sum[r][x] * factor);
    }
}
