/* Plain attention over decompressed keys and values, one row a call. A planted kernel defines one of the macros below
 * to do one thing wrong; without any the result is right. Sizes D (head) and P (rotary) come from the compiler. */
#include <math.h>
#include <stdint.h>

#ifndef KEYS_READ /* keys that a row looks at, of those that it may see */
#define KEYS_READ(visible) (visible)
#endif
#ifndef HEAD_READ /* head of the keys and values that the head reads */
#define HEAD_READ(head) (head)
#endif
#ifndef ELEMENTS_WRITTEN
#define ELEMENTS_WRITTEN(row, rows) D
#endif

static float score(const float *q, const float *qpe, const float *key, const float *rotary, float scale)
{
    float sum = 0;
    for (int64_t e = 0; e < D; e++)
        sum += q[e] * key[e];
    for (int64_t e = 0; e < P; e++)
        sum += qpe[e] * rotary[e];
    return scale * sum;
}

/* q, o [B,H,S,D]; qpe [B,H,S,P]; keys, values [B,T,H,D]; kpe [B,T,P]. */
void attention(const float *q, const float *qpe, const float *keys, const float *values, const float *kpe, float *o,
               int64_t batch, int64_t heads, int64_t s, int64_t t, int64_t causal, double scale, int64_t i,
               int64_t head, int64_t b)
{
    int64_t row = (b * heads + head) * s + i, rows = batch * heads * s;
    int64_t visible = causal ? t - s + i + 1 : t;
    float largest = -INFINITY, sum = 0, result[D] = {0};
    for (int64_t pass = 0; pass < 2; pass++)
        for (int64_t j = 0; j < KEYS_READ(visible); j++) {
            int64_t key = ((b * t + j) * heads + HEAD_READ(head)) * D;
            float x = score(q + row * D, qpe + row * P, keys + key, kpe + (b * t + j) * P, (float)scale);
            if (pass == 0) {
                largest = fmaxf(largest, x);
                continue;
            }
            float weight = j < visible ? expf(x - largest) : 0;
            sum += weight;
            for (int64_t e = 0; e < D; e++)
                result[e] += weight * values[key + e];
        }
    for (int64_t e = 0; e < ELEMENTS_WRITTEN(row, rows); e++)
        o[row * D + e] = visible > 0 ? result[e] / sum : 0;
}
