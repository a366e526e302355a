/* Right at first; wrong from the hundredth call on. */
#define attention attention_inside
#include "attention.h"
#undef attention

static int calls;

void attention(const float *q, const float *qpe, const float *keys, const float *values, const float *kpe, float *o,
               int64_t batch, int64_t heads, int64_t s, int64_t t, int64_t causal, double scale, int64_t i,
               int64_t head, int64_t b)
{
    attention_inside(q, qpe, keys, values, kpe, o, batch, heads, s, t, causal, scale, i, head, b);
    if (__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) >= 100)
        o[((b * heads + head) * s + i) * D] += 1;
}
