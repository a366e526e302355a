/* Right, and every second launch moves the first element of the output by its last bit. */
#include <math.h>
#define attention attention_inside
#include "attention.h"
#undef attention

void attention(const float *q, const float *qpe, const float *keys, const float *values, const float *kpe, float *o,
               int64_t batch, int64_t heads, int64_t s, int64_t t, int64_t causal, double scale, int64_t i,
               int64_t head, int64_t b)
{
    static int launches;
    attention_inside(q, qpe, keys, values, kpe, o, batch, heads, s, t, causal, scale, i, head, b);
    if (i == 0 && head == 0 && b == 0 && launches++ % 2 == 1)
        o[0] = nextafterf(o[0], INFINITY);
}
