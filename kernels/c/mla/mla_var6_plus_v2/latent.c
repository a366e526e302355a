/* mla_var6_plus v2, stage latent: attention over the old tokens, vectorised by hand, threaded.
 *
 * What differs from v1: tiles, register blocks and vectors are chosen by tuning (see tiles.h for the two kernels in
 * registers); several queries share every loaded latent vector; blocks go to all cores; and where they are fewer than
 * the cores can use, the tokens are split among blocks. Each leaves a partial result and the logarithm of its sum of
 * exponentials; the stage `combine` merges them while it reads them. */
#define SCORE_DIMS (K + P)
#define VALUE_DIMS K
#define VALUES_ARE_KEYS
#include "../../common/tiles.h"

/* At most BLOCK_M of the h * s queries of one request, from BLOCK_M * row_block on, over split `split` of `splits` of
 * the first `old` of t tokens.
 *
 * qc [b,h,s,k], qpe [b,h,s,p], z [b,t,k], kpe [b,t,p], part [splits,b,h,s,k], lse [splits,b,h,s]. */
void latent(const element *qc, const element *qpe, const element *z, const element *kpe, float *part, float *lse,
            int64_t b, int64_t s, int64_t t, int64_t old, int64_t h, double scale, int64_t causal, int64_t splits,
            int64_t request, int64_t row_block, int64_t split)
{
    struct block block;
    int64_t first = row_block * BLOCK_M;
    int64_t rows = min(BLOCK_M, h * s - first);
    int64_t first_row = request * h * s + first;

    begin_block(&block, rows);
    for (int64_t r = 0; r < rows; r++)
        load_query(&block, r, qc + (first_row + r) * K, K, qpe + (first_row + r) * P, P, (float)scale);

    int64_t tiles = (old + BLOCK_T - 1) / BLOCK_T;
    int64_t start = tiles * split / splits * BLOCK_T;
    int64_t end = min(tiles * (split + 1) / splits * BLOCK_T, old);
    for (; start < end; start += BLOCK_T) {
        int64_t present = min(BLOCK_T, old - start);
        for (int64_t j = 0; j < present; j++) {
            int64_t token = request * t + start + j;
            copy_row(block.key[j], z + token * K, K, K);
            copy_row(block.key[j] + K, kpe + token * P, P, SCORE_STRIDE - K);
        }
        pad_tile(&block, present);
        /* Row r is query (first + r) % s of its head, which sees the tokens up to t - s + that. */
        int64_t seen[BLOCK_M];
        for (int64_t r = 0; r < BLOCK_M; r++)
            seen[r] = causal ? min(present, t - s + (first + r) % s + 1 - start) : present;
        meet_tile(&block, rows, seen);
    }

    for (int64_t r = 0; r < rows; r++) {
        int64_t row = split * b * h * s + first_row + r;
        lse[row] = store_part(&block, r, part + row * K);
    }
}
