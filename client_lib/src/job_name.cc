#include "client_lib/src/job_name.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstdio>

#include "proto/numbers.h"

namespace gradbus {
namespace {

constexpr size_t kHashBytes = 17;  // "-" and 16 hexadecimal digits

// FNV-1a, 64 bits: names of different runs must differ after they were cut.
std::string hash_text(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
  char digits[kHashBytes + 1];
  std::snprintf(digits, sizeof(digits), "-%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

}  // namespace

std::string derived_job_name(const JobNameSource& source) {
  std::string name = source.launcher + "-u" + std::to_string(source.uid);
  if (!source.host.empty()) name += "-" + source.host;
  for (const std::string& part : source.parts) name += "-" + part;
  if (name.size() <= kJobNameBytesMax) return name;
  return name.substr(0, kJobNameBytesMax - kHashBytes) + hash_text(name);
}

bool is_loopback_address(const std::string& address) {
  if (address == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, address.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace gradbus
