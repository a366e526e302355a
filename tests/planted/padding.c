/* Keys are read in blocks of eight; those beyond the last get the weight 0, but 0 times NaN is NaN. */
#define KEYS_READ(visible) (((visible) + 7) / 8 * 8)
#include "attention.h"
