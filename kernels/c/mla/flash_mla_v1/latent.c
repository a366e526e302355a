/* flash_mla v1, stage latent: blocks of queries and keys, online softmax, one thread.
 *
 * What differs from v0: all heads of a request attend over the same latent vectors, so a block takes ROWS of the h * s
 * queries, whatever their heads, and every latent vector that it loads serves them all; scores never leave the stack,
 * and the inner loops vectorise (see blocked.h). A tile of 32 tokens is 72 KiB, 32 queries with their sums are 136 KiB;
 * both stay in a second-level cache. */
#include <stdint.h>

#define SCORE_DIMS (K + P)
#define VALUE_DIMS K
#define ROWS 32
#define KEYS 32
#include "../../common/blocked.h"

/* At most ROWS of the h * s queries of one request, from ROWS * row_block on.
 *
 * qc [b,h,s,k], qpe [b,h,s,p], z [b,t,k], kpe [b,t,p], latent [b,h,s,k]. */
void latent(const element *qc, const element *qpe, const element *z, const element *kpe, float *latent, int64_t s,
            int64_t t, int64_t h, double scale, int64_t causal, int64_t request, int64_t row_block)
{
    struct queries state;
    float keys[KEYS][SCORE_DIMS];
    int64_t first = row_block * ROWS;
    int64_t rows = min(ROWS, h * s - first);
    int64_t first_row = request * h * s + first;

    begin_queries(&state, rows);
    for (int64_t r = 0; r < rows; r++)
        load_query(&state, r, qc + (first_row + r) * K, K, qpe + (first_row + r) * P, P, (float)scale);

    for (int64_t start = 0; start < t; start += KEYS) {
        int64_t present = min(KEYS, t - start);
        for (int64_t j = 0; j < present; j++) {
            copy_row(keys[j], z + (request * t + start + j) * K, K);
            copy_row(keys[j] + K, kpe + (request * t + start + j) * P, P);
        }
        for (int64_t j = present; j < KEYS; j++)
            fill_zero(keys[j], SCORE_DIMS);
        for (int64_t r = 0; r < rows; r++) {
            int64_t seen = causal ? t - s + (first + r) % s + 1 : t;
            meet_keys(&state, r, min(present, seen - start), keys, keys[0], SCORE_DIMS);
        }
    }

    for (int64_t r = 0; r < rows; r++) {
        float factor = normaliser(&state, r);
        for (int64_t x = 0; x < K; x++)
            latent[(first_row + r) * K + x] = state.sum[r][x] * factor;
    }
}
