/* mla_var6_plus v1, stage combine: merge by log-sum-exp and projection, blocked, one thread.
 *
 * What differs from v0: four queries of a head share every element of w_uv that is loaded, and the inner loop runs
 * along d and vectorises (see project_rows.h). */
#include <math.h>
#include <stdint.h>

#include "../../common/element.h"
#include "../../common/project_rows.h"

/* The s queries of one head of one request; `block` counts the b * h of them.
 *
 * latent [b,h,s,k] and latent_lse [b,h,s] are there where n < t, fresh [b,h,s,d] and fresh_lse [b,h,s] where n > 0;
 * w_uv [h,k,d], o [b,h,s,d]. */
void combine(const float *latent, const float *latent_lse, const float *fresh, const float *fresh_lse,
             const element *w_uv, element *o, int64_t s, int64_t t, int64_t n, int64_t h, int64_t block)
{
    for (int64_t first = 0; first < s; first += 4) {
        float sums[4][D] = {{0.0f}};
        int64_t rows = s - first < 4 ? s - first : 4;
        int64_t first_row = block * s + first;
        if (n < t)
            project_rows(sums, latent + first_row * K, rows, w_uv + block % h * K * D);
        for (int64_t r = 0; r < rows; r++) {
            int64_t row = first_row + r;
            float old_lse = n < t ? latent_lse[row] : -INFINITY;
            float new_lse = n > 0 ? fresh_lse[row] : -INFINITY;
            float largest = fmaxf(old_lse, new_lse);
            /* A query that sees no token at all has no largest score; its result is 0. */
            float old_weight = old_lse > -INFINITY ? expf(old_lse - largest) : 0.0f;
            float new_weight = new_lse > -INFINITY ? expf(new_lse - largest) : 0.0f;
            float total = old_weight + new_weight;
            float factor = total > 0.0f ? 1.0f / total : 0.0f;
            for (int64_t x = 0; x < D; x++)
                sums[r][x] *= old_weight * factor;
            for (int64_t x = 0; x < D && n > 0; x++)
                sums[r][x] += new_weight * factor * fresh[row * D + x];
            for (int64_t x = 0; x < D; x++)
                o[row * D + x] = from_float(sums[r][x]);
        }
    }
}
