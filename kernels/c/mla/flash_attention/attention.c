/* flash_attention v0: attention over decompressed keys and values, as it is defined.
 *
 * For one query after the other: all scores, their softmax, the weighted sum of the values. Every score of a query
 * is kept, nothing is blocked, one thread does it all. This is the version to read, and the one that the others
 * are compared with; it is not meant to be fast. */
#include <math.h>
#include <stdint.h>

#include "../../common/element.h"

/* The s queries of one head of one request; `block` counts the b * h of them.
 *
 * q [b,h,s,d], qpe [b,h,s,p], key and value [b,t,h,d], kpe [b,t,p] (shared by the heads), o [b,h,s,d].
 * scores [t] and sum [d] are working memory. */
void attention(const element *q, const element *qpe, const element *key, const element *value, const element *kpe,
               element *o, float *scores, float *sum, int64_t s, int64_t t, int64_t h, int64_t d, int64_t p, double scale,
               int64_t causal, int64_t block)
{
    int64_t request = block / h;
    int64_t head = block % h;
    for (int64_t i = 0; i < s; i++) {
        const element *q_row = q + (block * s + i) * d;
        const element *qpe_row = qpe + (block * s + i) * p;
        element *o_row = o + (block * s + i) * d;
        /* Query i sees key j when j <= t - s + i. Where s > t the first queries see none. */
        int64_t visible = causal ? t - s + i + 1 : t;

        float largest = -INFINITY;
        for (int64_t j = 0; j < visible; j++) {
            const element *key_row = key + ((request * t + j) * h + head) * d;
            const element *kpe_row = kpe + (request * t + j) * p;
            float score = 0.0f;
            for (int64_t x = 0; x < d; x++)
                score += to_float(q_row[x]) * to_float(key_row[x]);
            for (int64_t x = 0; x < p; x++)
                score += to_float(qpe_row[x]) * to_float(kpe_row[x]);
            scores[j] = score * (float)scale;
            largest = fmaxf(largest, scores[j]);
        }

        float total = 0.0f;
        for (int64_t x = 0; x < d; x++)
            sum[x] = 0.0f;
        for (int64_t j = 0; j < visible; j++) {
            const element *value_row = value + ((request * t + j) * h + head) * d;
            float weight = expf(scores[j] - largest);
            total += weight;
            for (int64_t x = 0; x < d; x++)
                sum[x] += weight * to_float(value_row[x]);
        }

        /* The largest score has weight 1, so total is 0 only where no key is visible; the result is 0 there. */
        for (int64_t x = 0; x < d; x++)
            o_row[x] = from_float(total > 0.0f ? sum[x] / total : 0.0f);
    }
}
