/* mla_var6_plus v2, stage combine: merge by log-sum-exp and projection, vectorised by hand, threaded.
 *
 * What differs from v1: the latent vectors of all requests share the w_uv of their head, which is what this stage mostly
 * reads; sums stay in registers (see projection.h); the splits of the stage latent are merged on the way in.
 *
 * Every part, be it a split of the old tokens or the new ones, weighs exp(its log-sum-exp - the largest one). Where no
 * part saw a token, all of them are -infinity and the result is 0. */
#include "../../common/projection.h"

/* At most BLOCK_M of the b * s queries of one head, from BLOCK_M * row_block on.
 *
 * part [splits,b,h,s,k] and part_lse [splits,b,h,s] are there where n < t (else splits is 0), fresh [b,h,s,d] and
 * fresh_lse [b,h,s] where n > 0; w_uv [h,k,d], o [b,h,s,d]. */
void combine(const float *part, const float *part_lse, const float *fresh, const float *fresh_lse, const element *w_uv,
             element *o, int64_t b, int64_t s, int64_t n, int64_t h, int64_t splits, int64_t head, int64_t row_block)
{
    struct projection block;
    float fresh_weight[BLOCK_M] = {0.0f};
    int64_t first = row_block * BLOCK_M;
    int64_t rows = min(BLOCK_M, b * s - first);
    int64_t all = b * h * s;

    begin_projection(&block);
    for (int64_t r = 0; r < rows; r++) {
        int64_t row = ((first + r) / s * h + head) * s + (first + r) % s;
        float new_lse = n > 0 ? fresh_lse[row] : -INFINITY;
        float largest = new_lse;
        for (int64_t i = 0; i < splits; i++)
            largest = fmaxf(largest, part_lse[i * all + row]);
        float total = part_weight(new_lse, largest);
        for (int64_t i = 0; i < splits; i++)
            total += part_weight(part_lse[i * all + row], largest);
        float factor = total > 0.0f ? 1.0f / total : 0.0f;
        for (int64_t i = 0; i < splits; i++)
            add_latent(&block, r, part_weight(part_lse[i * all + row], largest) * factor, part + (i * all + row) * K);
        fresh_weight[r] = part_weight(new_lse, largest) * factor;
    }
    if (splits > 0)
        project_block(&block, rows, w_uv + head * K * D);
    for (int64_t r = 0; r < rows; r++) {
        int64_t row = ((first + r) / s * h + head) * s + (first + r) % s;
        for (int64_t x = 0; x < D && n > 0; x++)
            block.result[r][x] += fresh_weight[r] * fresh[row * D + x];
        for (int64_t x = 0; x < D; x++)
            o[row * D + x] = from_float(block.result[r][x]);
    }
}
