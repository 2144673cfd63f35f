/* Where a record has its UNIQ_KEY as our SDK writes it. Both compiled modules include it. */

#include <stdint.h>
#include <string.h>

enum { KEY_DIGITS = 32 };

/* A letter or a digit, of ASCII; told without a table, so that a compiler looks at all of a key at once: a third of the
   price. */
static inline int native_is_plain(uint8_t character)
{
    uint8_t digit = (uint8_t)(character - '0'), letter = (uint8_t)((character | 0x20) - 'a');
    return (digit < 10) | (letter < 26);
}

/* The key of properties that begin with one of 32 letters and digits; NULL: they do not. Of those, JSON has to spell none
   in another way, and none can be of the next record, which begins with its size. */
static inline const uint8_t *native_key_at(const Py_buffer *data, int64_t at)
{
    static const char name[] = "UNIQ_KEY\x01";
    enum { NAME_SIZE = sizeof name - 1, PROPERTY_END = 2 };
    if (at < 0 || at > data->len - NAME_SIZE - KEY_DIGITS - 1)
        return NULL;
    const uint8_t *key = (const uint8_t *)data->buf + at + NAME_SIZE;
    int plain = memcmp(key - NAME_SIZE, name, NAME_SIZE) == 0 && key[KEY_DIGITS] == PROPERTY_END;
    for (int digit = 0; digit < KEY_DIGITS; digit++)
        plain &= native_is_plain(key[digit]);
    return plain ? key : NULL;
}
