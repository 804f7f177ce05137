// `gradbus explain [GB-P101]`: the page of one error, or the list of all.
#include <CLI/CLI.hpp>
#include <cctype>
#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "cli/commands/error_pages.h"
#include "cli/terminal/text_table.h"
#include "common/errors.h"

namespace gradbus {
namespace {

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

const ErrorInfo* find_by_id_or_name(const std::string& word) {
  if (const ErrorInfo* info = find_error(word)) return info;
  for (const ErrorInfo& info : all_errors())
    if (info.name == word) return &info;
  return nullptr;
}

void print(const std::string& line) { std::printf("%s\n", line.c_str()); }

// A word in front, then the text behind it, within 80 columns.
void print_field(const std::string& name, std::string_view text) {
  constexpr size_t kIndent = 11;
  std::string lines = wrapped(std::string(text), kIndent);
  lines.replace(2, name.size() + 1, name + ":");
  std::fputs(lines.c_str(), stdout);
}

int explain_one(const std::string& word) {
  const ErrorInfo* info = find_by_id_or_name(upper(word));
  if (info == nullptr)
    return fail(error("F100", "no error is called \"" + word + "\"", "gradbus explain lists them"),
                kExitFailed);
  print("GB-" + std::string(info->id) + " " + std::string(info->name) + " (" +
        std::string(code_name(info->code)) + ")");
  print("");
  print_field("what", info->meaning);
  if (const ErrorPage* page = find_error_page(info->id)) {
    print_field("cause", page->cause);
    print_field("fault", page->fault);
    print_field("do", page->steps);
    print_field("example", page->example);
  }
  print_field("next", info->next);
  return kExitOk;
}

int explain_all() {
  for (const ErrorInfo& info : all_errors()) {
    print("GB-" + std::string(info.id) + " " + std::string(info.name));
    print("    " + std::string(info.meaning));
  }
  return kExitOk;
}

}  // namespace

Action declare_explain(CLI::App& app) {
  auto word = std::make_shared<std::string>();
  app.add_option("error", *word, "number or name, e.g. GB-P101, P101, PEER_LOST");
  return [word] { return word->empty() ? explain_all() : explain_one(*word); };
}

}  // namespace gradbus
