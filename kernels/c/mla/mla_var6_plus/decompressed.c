/* mla_var6_plus v0, stage decompressed: attention over the new tokens, whose keys and values are decompressed.
 *
 * One query after the other: all scores, their softmax, the weighted sum; plain loops, one thread. */
#include <math.h>
#include <stdint.h>

#include "../../common/element.h"

/* The s queries of one head of one request over the last n of t tokens; `block` counts the b * h of them.
 *
 * q [b,h,s,d], qpe [b,h,s,p], key_new and value_new [b,n,h,d], kpe [b,t,p], fresh [b,h,s,d]; lse [b,h,s] becomes the
 * logarithm of the sum of exponentials of a query's scores, -infinity where it sees none of these tokens. scores [n] is
 * working memory. */
void decompressed(const element *q, const element *qpe, const element *key_new, const element *value_new,
                  const element *kpe, float *fresh, float *lse, float *scores, int64_t s, int64_t t, int64_t n,
                  int64_t h, int64_t d, int64_t p, double scale, int64_t causal, int64_t block)
{
    int64_t request = block / h;
    int64_t head = block % h;
    for (int64_t i = 0; i < s; i++) {
        const element *q_row = q + (block * s + i) * d;
        const element *qpe_row = qpe + (block * s + i) * p;
        float *sum = fresh + (block * s + i) * d;
        /* Query i sees token j when j <= t - s + i; new token 0 is token t - n. */
        int64_t visible = causal ? n - s + i + 1 : n;

        float largest = -INFINITY;
        for (int64_t j = 0; j < visible; j++) {
            const element *key_row = key_new + ((request * n + j) * h + head) * d;
            const element *kpe_row = kpe + (request * t + t - n + j) * p;
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
            const element *value_row = value_new + ((request * n + j) * h + head) * d;
            float weight = expf(scores[j] - largest);
            total += weight;
            for (int64_t x = 0; x < d; x++)
                sum[x] += weight * to_float(value_row[x]);
        }

        /* The largest score has weight 1, so total is 0 only where no token is visible; the result is 0 there. */
        for (int64_t x = 0; x < d; x++)
            sum[x] = total > 0.0f ? sum[x] / total : 0.0f;
        lse[block * s + i] = total > 0.0f ? largest + logf(total) : -INFINITY;
    }
}
