/* flash_mla v0, stage project: from latent results to the heads' results, o = latent · w_uv. Plain loops. */
#include <stdint.h>

#include "../../common/element.h"

/* The s queries of one head of one request; `block` counts the b * h of them.
 *
 * latent [b,h,s,k], w_uv [h,k,d], o [b,h,s,d]. */
void project(const float *latent, const element *w_uv, element *o, int64_t s, int64_t h, int64_t d, int64_t k,
             int64_t block)
{
    const element *w_head = w_uv + block % h * k * d;
    for (int64_t i = 0; i < s; i++) {
        const float *latent_row = latent + (block * s + i) * k;
        for (int64_t x = 0; x < d; x++) {
            float sum = 0.0f;
            for (int64_t y = 0; y < k; y++)
                sum += latent_row[y] * to_float(w_head[y * d + x]);
            o[(block * s + i) * d + x] = from_float(sum);
        }
    }
}
