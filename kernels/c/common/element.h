/* One element of a tensor of the kernel's dtype: its storage type, and its conversion from and to float.
 *
 * bfloat16 is stored as uint16_t, the upper half of a float; all arithmetic is done in float. */
#ifndef COMMON_ELEMENT_H
#define COMMON_ELEMENT_H

#include <stdint.h>
#include <string.h>

#if defined(DTYPE_FLOAT32)

typedef float element;

static inline float to_float(element value)
{
    return value;
}

static inline element from_float(float value)
{
    return value;
}

#elif defined(DTYPE_BFLOAT16)

typedef uint16_t element;

static inline float to_float(element value)
{
    uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

/* Rounds to the nearest, ties to even. A NaN stays one: the carry of rounding could turn it into an infinity. */
static inline element from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uint32_t quiet_nan = bits >> 16 | 0x40;
    return (element)((bits & 0x7fffffff) > 0x7f800000 ? quiet_nan : rounded);
}

#else
#error "define DTYPE_FLOAT32 or DTYPE_BFLOAT16"
#endif

#endif
