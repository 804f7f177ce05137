#include "compression/registry.h"

namespace gradbus {

std::span<const CodecRow> sparse_codecs() { return {}; }

}  // namespace gradbus
