/* The last visible key is left out. */
#define KEYS_READ(visible) ((visible) - 1)
#include "attention.h"
