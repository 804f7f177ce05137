// `gradbus explain [GB-P101]`: the page of one error, or the list of all.
#include <CLI/CLI.hpp>
#include <cctype>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/commands/error_pages.h"
#include "common/errors.h"
#include "common/text/help_text.h"

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
  std::string lines = wrapped(text, kIndent);
  lines.replace(2, name.size() + 1, name + ":");
  std::fputs(lines.c_str(), stdout);
}

using Json = nlohmann::ordered_json;

// docs/reference/json.md has the keys.
Json error_json(const ErrorInfo& info) {
  const ErrorPage* page = find_error_page(info.id);
  const auto text = [&](std::string_view ErrorPage::*field) {
    return page == nullptr ? "" : std::string(page->*field);
  };
  return {{"error", "GB-" + std::string(info.id)},
          {"name", info.name},
          {"kind", code_name(info.code)},
          {"what", info.meaning},
          {"cause", text(&ErrorPage::cause)},
          {"fault", text(&ErrorPage::fault)},
          {"do", text(&ErrorPage::steps)},
          {"example", text(&ErrorPage::example)},
          {"next", info.next}};
}

int explain_exit_codes(bool as_json) {
  Json list = Json::array();
  for (const ExitCodeInfo& info : kExitCodes) {
    list.push_back({{"code", info.code}, {"commands", info.commands}, {"meaning", info.meaning}});
    if (as_json) continue;
    print(std::string(info.code) + " (" + std::string(info.commands) + ")");
    std::fputs(wrapped(info.meaning, 4).c_str(), stdout);
  }
  if (as_json) print(list.dump());
  return kExitOk;
}

int explain_one(const std::string& word, bool as_json) {
  const ErrorInfo* info = find_by_id_or_name(upper(word));
  if (info == nullptr)
    return fail(error("F100", "no error is called \"" + word + "\"", "gradbus explain lists them"),
                kExitFailed);
  if (as_json) {
    print(error_json(*info).dump());
    return kExitOk;
  }
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

int explain_all(bool as_json) {
  if (as_json) {
    Json list = Json::array();
    for (const ErrorInfo& info : all_errors()) list.push_back(error_json(info));
    print(list.dump());
    return kExitOk;
  }
  for (const ErrorInfo& info : all_errors()) {
    print("GB-" + std::string(info.id) + " " + std::string(info.name));
    std::fputs(wrapped(info.meaning, 4).c_str(), stdout);
  }
  return kExitOk;
}

}  // namespace

Action declare_explain(CLI::App& app) {
  struct Options {
    std::string word;
    bool json = false;
    bool exit_codes = false;
  };
  auto options = std::make_shared<Options>();
  app.add_option("error", options->word, "number or name, e.g. GB-P101, P101, PEER_LOST");
  app.add_flag("--exit-codes", options->exit_codes, "what the exit codes of gradbus mean");
  app.add_flag("--json", options->json, "one JSON object, or an array for several");
  return [options] {
    if (options->exit_codes) return explain_exit_codes(options->json);
    return options->word.empty() ? explain_all(options->json)
                                 : explain_one(options->word, options->json);
  };
}

}  // namespace gradbus
