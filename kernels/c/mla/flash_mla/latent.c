/* flash_mla v0, stage latent: attention over the latent cache, as it is defined.
 *
 * Queries arrive absorbed (qc = q · w_ukᵀ), so the latent vector of a token serves as its key and as its value, for
 * all heads. One query after the other: all scores, their softmax, the weighted sum; plain loops, one thread. */
#include <math.h>
#include <stdint.h>

#include "../../common/element.h"

/* The s queries of one head of one request; `block` counts the b * h of them.
 *
 * qc [b,h,s,k], qpe [b,h,s,p], z [b,t,k], kpe [b,t,p], latent [b,h,s,k]. scores [t] is working memory. */
void latent(const element *qc, const element *qpe, const element *z, const element *kpe, float *latent, float *scores,
            int64_t s, int64_t t, int64_t h, int64_t k, int64_t p, double scale, int64_t causal, int64_t block)
{
    int64_t request = block / h;
    for (int64_t i = 0; i < s; i++) {
        const element *qc_row = qc + (block * s + i) * k;
        const element *qpe_row = qpe + (block * s + i) * p;
        float *sum = latent + (block * s + i) * k;
        /* Query i sees key j when j <= t - s + i. Where s > t the first queries see none. */
        int64_t visible = causal ? t - s + i + 1 : t;

        float largest = -INFINITY;
        for (int64_t j = 0; j < visible; j++) {
            const element *z_row = z + (request * t + j) * k;
            const element *kpe_row = kpe + (request * t + j) * p;
            float score = 0.0f;
            for (int64_t x = 0; x < k; x++)
                score += to_float(qc_row[x]) * to_float(z_row[x]);
            for (int64_t x = 0; x < p; x++)
                score += to_float(qpe_row[x]) * to_float(kpe_row[x]);
            scores[j] = score * (float)scale;
            largest = fmaxf(largest, scores[j]);
        }

        float total = 0.0f;
        for (int64_t x = 0; x < k; x++)
            sum[x] = 0.0f;
        for (int64_t j = 0; j < visible; j++) {
            const element *z_row = z + (request * t + j) * k;
            float weight = expf(scores[j] - largest);
            total += weight;
            for (int64_t x = 0; x < k; x++)
                sum[x] += weight * to_float(z_row[x]);
        }

        /* The largest score has weight 1, so total is 0 only where no key is visible; the result is 0 there. */
        for (int64_t x = 0; x < k; x++)
            sum[x] = total > 0.0f ? sum[x] / total : 0.0f;
    }
}
