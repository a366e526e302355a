/* Vectors of floats as wide as the machine has them, through the vector extensions of GCC and Clang: the compiler
 * turns them into AVX-512, AVX, SSE or NEON, so there is no code for one machine alone. */
#ifndef COMMON_VECTOR_H
#define COMMON_VECTOR_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

/* Floats in a vector: 4, 8 or 16. */
#define LANES (VECTOR_BYTES / 4)

typedef float vector __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t int_vector __attribute__((vector_size(VECTOR_BYTES)));
typedef float quad __attribute__((vector_size(16)));

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* `from` is aligned to a vector. */
ALWAYS_INLINE vector load(const float *from)
{
    return *(const vector *)from;
}

/* `to` is aligned to a vector. */
ALWAYS_INLINE void store(float *to, vector value)
{
    *(vector *)to = value;
}

ALWAYS_INLINE vector splat(float value)
{
    return value - (vector){0};
}

/* Keeps a loaded vector in its register: the compiler would load it again for each of its uses, and the two loads of a
 * cycle, not its multiplications, would then set the pace. */
#if defined(__x86_64__)
#define HOLD(v) __asm__("" : "+x"(v))
#elif defined(__aarch64__)
#define HOLD(v) __asm__("" : "+w"(v))
#else
#define HOLD(v) (void)0
#endif

/* Lane by lane `a` where `mask` is set (all ones), `b` where it is 0. */
ALWAYS_INLINE vector choose(int_vector mask, vector a, vector b)
{
    return (vector)((mask & (int_vector)a) | (~mask & (int_vector)b));
}

ALWAYS_INLINE vector larger(vector a, vector b)
{
    return choose(a > b, a, b);
}

/* exp(x) for x <= 0, within a relative 1e-6; 0 below -87, so also for -infinity. 2^x is a power of two, put into the
 * exponent, times a polynomial for the rest, which lies in -1/2 … 1/2. */
ALWAYS_INLINE vector exp_negative(vector x)
{
    vector power = larger(x * 1.44269504f, splat(-126.0f));
    int_vector whole = __builtin_convertvector(power - 0.5f, int_vector);
    vector f = power - __builtin_convertvector(whole, vector);
    vector result = splat(1.54035304e-4f);
    result = result * f + 1.33335581e-3f;
    result = result * f + 9.61812911e-3f;
    result = result * f + 5.55041087e-2f;
    result = result * f + 2.40226507e-1f;
    result = result * f + 6.93147181e-1f;
    result = result * f + 1.0f;
    return (vector)(((int_vector)result + (whole << 23)) & (x > splat(-87.0f)));
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#endif
#endif
#ifndef SHUFFLE
#define SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, (int32_t __attribute__((vector_size(16)))){i, j, k, l})
#endif

/* The sum of the vector's quads. */
ALWAYS_INLINE quad fold(vector a)
{
    quad parts[LANES / 4];
    memcpy(parts, &a, sizeof parts);
    quad sum = parts[0];
    for (int i = 1; i < LANES / 4; i++)
        sum += parts[i];
    return sum;
}

/* The sums over all lanes of a, b, c and d. */
ALWAYS_INLINE quad sums_of_four(vector a, vector b, vector c, vector d)
{
    quad qa = fold(a), qb = fold(b), qc = fold(c), qd = fold(d);
    quad ab = SHUFFLE(qa, qb, 0, 4, 1, 5) + SHUFFLE(qa, qb, 2, 6, 3, 7);
    quad cd = SHUFFLE(qc, qd, 0, 4, 1, 5) + SHUFFLE(qc, qd, 2, 6, 3, 7);
    return SHUFFLE(ab, cd, 0, 1, 4, 5) + SHUFFLE(ab, cd, 2, 3, 6, 7);
}

#endif
