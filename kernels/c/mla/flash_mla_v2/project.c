/* flash_mla v2, stage project: o = latent · w_uv, vectorised by hand, threaded.
 *
 * What differs from v1: the latent vectors of all requests share the w_uv of their head, which is what this stage mostly
 * reads; sums stay in registers; the splits of the stage before are merged on the way in. A split weighs exp(its
 * log-sum-exp - the largest one). Where no split saw a token, all of them are -infinity and the result is 0. */
#include "../../common/projection.h"

/* At most BLOCK_M of the b * s latent vectors of one head, from BLOCK_M * row_block on.
 *
 * part [splits,b,h,s,k], lse [splits,b,h,s], w_uv [h,k,d], o [b,h,s,d]. */
void project(const float *part, const float *lse, const element *w_uv, element *o, int64_t b, int64_t s, int64_t h,
             int64_t splits, int64_t head, int64_t row_block)
{
    struct projection block;
    int64_t first = row_block * BLOCK_M;
    int64_t rows = min(BLOCK_M, b * s - first);
    int64_t all = b * h * s;

    begin_projection(&block);
    for (int64_t r = 0; r < rows; r++) {
        int64_t row = ((first + r) / s * h + head) * s + (first + r) % s;
        float largest = -INFINITY;
        for (int64_t i = 0; i < splits; i++)
            largest = fmaxf(largest, lse[i * all + row]);
        float total = 0.0f;
        for (int64_t i = 0; i < splits; i++)
            total += part_weight(lse[i * all + row], largest);
        for (int64_t i = 0; i < splits && total > 0.0f; i++)
            add_latent(&block, r, part_weight(lse[i * all + row], largest) / total, part + (i * all + row) * K);
    }
    project_block(&block, rows, w_uv + head * K * D);
    for (int64_t r = 0; r < rows; r++) {
        int64_t row = ((first + r) / s * h + head) * s + (first + r) % s;
        for (int64_t x = 0; x < D; x++)
            o[row * D + x] = from_float(block.result[r][x]);
    }
}
