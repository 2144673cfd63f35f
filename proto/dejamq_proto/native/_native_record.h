/* Where in a record its header has what: record.py. */

#include <stdint.h>

enum { TOTAL_SIZE_AT = 0, MAGIC_AT = 4, BODY_CRC_AT = 8, QUEUE_ID_AT = 12, SYS_FLAG_AT = 36, BORN_AT = 40 };
enum { BODY_SIZE_AT = 84, HEADER_SIZE = 88 };

static inline uint32_t number_at(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}
