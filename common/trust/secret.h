// Secrets of 256 bits, and proofs that somebody knows one. Cryptography is OpenSSL's.
//
// Pure but for random_secret(); any thread. Not for libgradbus, which links libc alone.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace gradbus {

inline constexpr size_t kSecretBytes = 32;
using Secret = std::array<uint8_t, kSecretBytes>;

// From the operating system's generator, by OpenSSL. A machine without one ends the process.
Secret random_secret();

// HMAC-SHA256 over the parts. Each is preceded by its length, so that no two lists of parts have
// the same bytes. The first part says what the proof is for.
Secret hmac(const Secret& key, std::initializer_list<std::string_view> parts);

// In a time that does not depend on where they differ. Texts of different lengths differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);

std::string text_of(const Secret& secret);  // its 32 bytes

}  // namespace gradbus
