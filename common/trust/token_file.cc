#include "common/trust/token_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/errors.h"
#include "common/fd.h"

namespace gradbus {
namespace {

constexpr size_t kDigits = 2 * kSecretBytes;

Status cannot(const std::string& path, const std::string& why, const std::string& next = {}) {
  return error("F104", "token file " + path + ": " + why, next);
}

std::string octal(mode_t mode) {
  char text[16];
  std::snprintf(text, sizeof(text), "%04o", mode & 07777u);
  return text;
}

Status check_owner(const std::string& path, int fd, TokenReader reader) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return cannot(path, std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return cannot(path, "it is not a regular file");
  const bool tool_of_root = reader == TokenReader::kTool && geteuid() == 0;
  if (info.st_uid != geteuid() && info.st_uid != 0 && !tool_of_root)
    return cannot(path,
                  "it belongs to uid " + std::to_string(info.st_uid) +
                      ", this process runs as uid " + std::to_string(geteuid()),
                  "make a copy that belongs to this user: install -m 600 " + path + " COPY");
  if ((info.st_mode & 0077u) != 0)
    return cannot(path, "its mode is " + octal(info.st_mode) + ", so other users can use it",
                  "chmod 600 " + path + "; make a new token if others may have read it");
  return {};
}

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

std::optional<Secret> parse(std::string_view text) {
  Secret token;
  if (text.size() == kSecretBytes) {
    std::memcpy(token.data(), text.data(), kSecretBytes);
    return token;
  }
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  if (text.size() != kDigits) return std::nullopt;
  for (size_t i = 0; i < kSecretBytes; ++i) {
    const int high = digit(text[2 * i]);
    const int low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    token[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return token;
}

}  // namespace

std::string token_file_path(const std::string& given) {
  if (!given.empty()) return given;
  const char* path = std::getenv("GRADBUS_TOKEN_FILE");
  return path == nullptr ? "" : path;
}

Result<Secret> read_token_file(const std::string& path, TokenReader reader) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.valid()) return cannot(path, std::strerror(errno));
  GRADBUS_RETURN_IF_ERROR(check_owner(path, file.get(), reader));
  std::array<char, kDigits + 16> buffer;
  const ssize_t got = read(file.get(), buffer.data(), buffer.size());
  if (got < 0) return cannot(path, std::strerror(errno));
  const std::optional<Secret> token = parse({buffer.data(), static_cast<size_t>(got)});
  if (!token) return cannot(path, "it does not hold 64 hexadecimal digits or 32 bytes");
  return *token;
}

Result<std::optional<Secret>> read_optional_token(const std::string& path, TokenReader reader) {
  if (path.empty()) return std::optional<Secret>();
  const Result<Secret> token = read_token_file(path, reader);
  if (!token.ok()) return token.status();
  return std::optional(token.value());
}

Status create_token_file(const std::string& path) {
  const Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return cannot(path, std::strerror(errno));
  std::string text;
  for (const uint8_t byte : random_secret()) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", byte);
    text += digits;
  }
  text += '\n';
  if (write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size())) return {};
  return cannot(path, std::strerror(errno));
}

}  // namespace gradbus
