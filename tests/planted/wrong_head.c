/* Head 2 reads the keys and values of head 1. */
#define HEAD_READ(head) ((head) == 2 ? 1 : (head))
#include "attention.h"
