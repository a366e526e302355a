/* flash_mla v1, stage project: o = latent · w_uv, blocked, one thread.
 *
 * What differs from v0: the queries of a head share every element of w_uv that is loaded, for a few queries at a time
 * the sums of all d results stay close to the core, and the inner loop runs along d and vectorises. */
#include <stdint.h>

#include "../../common/element.h"
#include "../../common/project_rows.h"

/* The s queries of one head of one request; `block` counts the b * h of them.
 *
 * latent [b,h,s,k], w_uv [h,k,d], o [b,h,s,d]. */
void project(const float *latent, const element *w_uv, element *o, int64_t s, int64_t h, int64_t block)
{
    for (int64_t first = 0; first < s; first += 4) {
        float sums[4][D] = {{0.0f}};
        int64_t rows = s - first < 4 ? s - first : 4;
        project_rows(sums, latent + (block * s + first) * K, rows, w_uv + block % h * K * D);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t x = 0; x < D; x++)
                o[(block * s + first + r) * D + x] = from_float(sums[r][x]);
    }
}
