/* Two halves of the keys are merged by their largest scores; where a row sees no key of the second half, its largest
 * score is -inf, and so is the difference that the merge takes the exponential of: NaN. */
#include <math.h>
#include <stdint.h>

void attention(const float *q, const float *qpe, const float *keys, const float *values, const float *kpe, float *o,
               int64_t batch, int64_t heads, int64_t s, int64_t t, int64_t causal, double scale, int64_t i,
               int64_t head, int64_t b)
{
    (void)batch;
    int64_t row = (b * heads + head) * s + i, half = t - 2, visible = causal ? t - s + i + 1 : t;
    float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0}, result[2][D] = {{0}};
    for (int64_t part = 0; part < 2; part++) {
        for (int64_t j = part ? half : 0; j < (part ? visible : (visible < half ? visible : half)); j++) {
            const float *key = keys + ((b * t + j) * heads + head) * D, *value = values + ((b * t + j) * heads + head) * D;
            float x = 0;
            for (int64_t e = 0; e < D; e++)
                x += q[row * D + e] * key[e];
            for (int64_t e = 0; e < P; e++)
                x += qpe[row * P + e] * kpe[(b * t + j) * P + e];
            x *= (float)scale;
            float before = largest[part];
            largest[part] = fmaxf(before, x);
            float shrink = expf(before - largest[part]), weight = expf(x - largest[part]);
            sum[part] = sum[part] * shrink + weight;
            for (int64_t e = 0; e < D; e++)
                result[part][e] = result[part][e] * shrink + weight * value[e];
        }
    }
    float shrink = expf(largest[0] - largest[1]); /* inf without a visible key in the second half */
    float total = sum[0] * shrink + sum[1];
    for (int64_t e = 0; e < D; e++)
        o[row * D + e] = (result[0][e] * shrink + result[1][e]) / total;
}
