#include "server/coordinator/questions/tensor_notes.h"

#include "common/errors.h"
#include "common/text/json_text.h"
#include "proto/frame.h"
#include "server/coordinator/members/text.h"

namespace gradbus {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kExplain = R"({"want": "explain")";
constexpr std::string_view kChunks = R"({"want": "chunks")";
constexpr std::string_view kFidelity = R"({"want": "fidelity")";

Status bad() {
  return short_error("F102", "a question about tensors cannot be read, or is too long",
                     "use ranks, agents and coordinator of one version");
}

Result<std::string> explain(const Json& reasons, CoordinatorJob& job) {
  if (!reasons.is_object()) return bad();
  for (const auto& [tensor, why] : reasons.items()) {
    if (!why.is_string()) return bad();
    job.explain(tensor, clean_text(why.get<std::string>(), kReasonBytesMax));
  }
  return std::string("{}");
}

Result<std::string> fidelity(const Json& tensors, const CoordinatorJob& job) {
  if (!tensors.is_array()) return bad();
  Json found = Json::object();
  for (const Json& tensor : tensors) {
    if (!tensor.is_string()) return bad();
    const v1::Fidelity* const newest = job.fidelity(tensor.get<std::string>());
    if (newest != nullptr)
      found[tensor.get<std::string>()] = {{"round", newest->round()}, {"cosine", newest->cosine()}};
  }
  return Json{{"fidelity", found}}.dump();
}

Result<std::string> chunks(const Json& bytes, CoordinatorJob& job) {
  if (!bytes.is_number_unsigned()) return bad();
  const auto wanted = bytes.get<uint64_t>();
  if (wanted != 0 && (wanted < kTunedChunkBytesMin || wanted > kFramePayloadBytesMax)) return bad();
  return Json{{"bytes", job.set_chunk_bytes(wanted)}}.dump();
}

}  // namespace

bool is_about_tensors(std::string_view question) {
  return question.starts_with(kExplain) || question.starts_with(kFidelity) ||
         question.starts_with(kChunks);
}

Result<std::string> answer_about_tensors(std::string_view question, CoordinatorJob& job) {
  if (question.size() > kNotesBytesMax) return bad();
  const Json asked = parse_json(question);
  if (!asked.is_object()) return bad();
  const auto part = [&asked](const char* key) { return asked.value(key, Json()); };
  if (question.starts_with(kExplain)) return explain(part("why"), job);
  if (question.starts_with(kChunks)) return chunks(part("bytes"), job);
  return fidelity(part("tensors"), job);
}

}  // namespace gradbus
