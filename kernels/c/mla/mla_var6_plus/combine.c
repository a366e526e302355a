/* mla_var6_plus v0, stage combine: one result out of those over old and new tokens.
 *
 * Each of the two is a softmax by itself. Over all tokens together it weighs exp(its log-sum-exp), in proportion; the
 * largest is subtracted first, so that nothing overflows. The latent result is projected by w_uv on the way. */
#include <math.h>
#include <stdint.h>

#include "../../common/element.h"

/* The s queries of one head of one request; `block` counts the b * h of them.
 *
 * latent [b,h,s,k] and latent_lse [b,h,s] are there where n < t, fresh [b,h,s,d] and fresh_lse [b,h,s] where n > 0;
 * w_uv [h,k,d], o [b,h,s,d]. */
void combine(const float *latent, const float *latent_lse, const float *fresh, const float *fresh_lse,
             const element *w_uv, element *o, int64_t s, int64_t t, int64_t n, int64_t h, int64_t d, int64_t k,
             int64_t block)
{
    const element *w_head = w_uv + block % h * k * d;
    for (int64_t row = block * s; row < (block + 1) * s; row++) {
        float old_lse = n < t ? latent_lse[row] : -INFINITY;
        float new_lse = n > 0 ? fresh_lse[row] : -INFINITY;
        float largest = fmaxf(old_lse, new_lse);
        /* A query that sees no token at all has no largest score; its result is 0. */
        float old_weight = old_lse > -INFINITY ? expf(old_lse - largest) : 0.0f;
        float new_weight = new_lse > -INFINITY ? expf(new_lse - largest) : 0.0f;
        float total = old_weight + new_weight;

        for (int64_t x = 0; x < d; x++) {
            float sum = 0.0f;
            if (old_weight > 0.0f)
                for (int64_t y = 0; y < k; y++)
                    sum += latent[row * k + y] * to_float(w_head[y * d + x]);
            sum *= old_weight;
            if (new_weight > 0.0f)
                sum += new_weight * fresh[row * d + x];
            o[row * d + x] = from_float(total > 0.0f ? sum / total : 0.0f);
        }
    }
}
