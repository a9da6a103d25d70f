/* The hashes that say which partition a key belongs to: the twins of `goqueue.model.partitioner`. */
#ifndef GOQUEUE_HASHES_H
#define GOQUEUE_HASHES_H

#include <stdint.h>
#include <string.h>

enum { HASH_MURMUR3 = 0, HASH_MURMUR2 = 1, HASH_CRC32 = 2 };

static inline uint32_t little_endian(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* The one to three bytes after the last whole word, the first of them lowest. */
static inline uint32_t tail_of(const uint8_t *at, int64_t count) {
    uint32_t tail = 0;
    for (int64_t i = 0; i < count; i++) tail |= (uint32_t)at[i] << (8 * i);
    return tail;
}

static inline uint32_t rotated(uint32_t word, int bits) { return word << bits | word >> (32 - bits); }

/* 32 bits, seed 0, the sign bit cleared. */
static inline uint32_t murmur3(const uint8_t *key, int64_t length) {
    const uint32_t first = 0xCC9E2D51u, second = 0x1B873593u;
    int64_t whole = length & ~(int64_t)3;
    uint32_t hashed = 0;
    for (int64_t at = 0; at < whole; at += 4) {
        hashed ^= rotated(little_endian(key + at) * first, 15) * second;
        hashed = rotated(hashed, 13) * 5 + 0xE6546B64u;
    }
    if (length > whole) hashed ^= rotated(tail_of(key + whole, length - whole) * first, 15) * second;
    hashed ^= (uint32_t)length;
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6Bu;
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35u;
    return (hashed ^ hashed >> 16) & 0x7FFFFFFFu;
}

/* Kafka's, the sign bit cleared. */
static inline uint32_t murmur2(const uint8_t *key, int64_t length) {
    const uint32_t multiplier = 0x5BD1E995u;
    int64_t whole = length & ~(int64_t)3;
    uint32_t hashed = 0x9747B28Cu ^ (uint32_t)length;
    for (int64_t at = 0; at < whole; at += 4) {
        uint32_t word = little_endian(key + at) * multiplier;
        hashed = hashed * multiplier ^ (word ^ word >> 24) * multiplier;
    }
    if (length > whole) hashed = (hashed ^ tail_of(key + whole, length - whole)) * multiplier;
    hashed = (hashed ^ hashed >> 13) * multiplier;
    return (hashed ^ hashed >> 15) & 0x7FFFFFFFu;
}

/* zlib's. */
static inline uint32_t crc32_of(const uint8_t *key, int64_t length) {
    static uint32_t table[256];
    if (!table[1]) { /* under the GIL */
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t word = i;
            for (int bit = 0; bit < 8; bit++) word = word & 1 ? word >> 1 ^ 0xEDB88320u : word >> 1;
            table[i] = word;
        }
    }
    uint32_t hashed = 0xFFFFFFFFu;
    for (int64_t at = 0; at < length; at++) hashed = table[(hashed ^ key[at]) & 0xFF] ^ hashed >> 8;
    return ~hashed;
}

static inline uint32_t hash_key(int kind, const uint8_t *key, int64_t length) {
    if (kind == HASH_MURMUR3) return murmur3(key, length);
    return kind == HASH_MURMUR2 ? murmur2(key, length) : crc32_of(key, length);
}

#endif
