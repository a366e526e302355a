/* A delay that is work: a chain of multiply-adds, each of which needs the one before it. */
#ifndef COMMON_SPIN_H
#define COMMON_SPIN_H

#include "element.h"

/* The end of a chain of `count` multiply-adds by chain[0], a factor below 1, and chain[1]. It stays below
 * chain[1] / (1 - chain[0]); whoever looks whether it is larger keeps the compiler from dropping the chain. */
static inline float spin(const element *chain, int64_t count)
{
    const float factor = to_float(chain[0]), addend = to_float(chain[1]);
    float end = addend;
    for (int64_t i = 0; i < count; i++)
        end = end * factor + addend;
    return end;
}

#endif
