// A program's options over CLI11 (flags) and toml++ (file). Start-up only, one thread.
//
// CLI11 only splits the command line: it hands over texts, so that a value from a flag, a variable
// or the file meets the same checks and the same errors. parse() applies them weakest first.
#include "common/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>

#include "common/check.h"
#include "common/edit_distance.h"
#include "common/errors.h"
#include "common/option_file.h"
#include "common/option_value.h"
#include "common/text/help_text.h"

namespace gradbus {

namespace {

std::string describe(const OptionValue& option) {
  if (!std::holds_alternative<int64_t*>(option.target)) return option.sentence;
  return option.sentence + " (" + std::to_string(option.min) + " to " + std::to_string(option.max) +
         ")";
}

}  // namespace

struct OptionTable::Option : OptionValue {
  explicit Option(OptionValue value) : OptionValue(std::move(value)) {}

  void declare(CLI::App& app) {
    const std::string flag = "--" + name;
    if (std::holds_alternative<bool*>(target)) {
      given = app.add_flag(flag, flag_text, describe(*this));
    } else {
      given = app.add_option(flag, flag_text, describe(*this))->type_name(type_name());
      given->default_str(toml());
    }
  }

  Status apply_flag() {
    if (given->count() == 0) return {};
    GRADBUS_RETURN_IF_ERROR(set_text(flag_text, "flag --" + name));
    origin = "--" + name;
    return {};
  }

  std::string flag_text;
  CLI::Option* given = nullptr;  // belongs to the command line being parsed
};

namespace {

// The flags every program has.
struct CommonFlags {
  bool help = false;
  bool version = false;
  bool print_config = false;
  std::string config;

  void declare(CLI::App& app) {
    app.set_help_flag();
    app.add_flag("-h,--help", help, "Print this and exit");
    app.add_flag("--version", version, "Print the version and exit");
    app.add_flag("--print-config", print_config,
                 "Print every option as TOML, with its origin, and exit");
    app.add_option("--config", config, "Read options from this TOML file")->type_name("FILE");
  }
};

std::string variable_name(const std::string& section, const OptionValue& option) {
  std::string name = "GRADBUS_" + section + "_" + option.key();
  std::replace(name.begin(), name.end(), '-', '_');
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

// An empty variable counts as not set, so that a unit file can blank it.
Status apply_variable(const std::string& section, OptionValue& option) {
  const std::string name = variable_name(section, option);
  const char* const text = std::getenv(name.c_str());
  if (text == nullptr || *text == '\0') return {};
  GRADBUS_RETURN_IF_ERROR(option.set_text(text, "variable " + name));
  option.origin = name;
  return {};
}

Status unknown_argument(const CLI::App& app, const std::string& argument) {
  if (!argument.starts_with("-"))
    return error("F101", "unexpected argument " + toml_string(argument));
  const std::string flag = argument.substr(0, argument.find('='));
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    known.push_back("--" + option->get_lnames().front());
  }
  const std::string closest = closest_name(flag, known);
  return error("F101", "no flag " + toml_string(flag) +
                           (closest.empty() ? "" : "; did you mean " + closest + "?"));
}

// The arguments in CLI11's order, last first. CLI11 takes "--name=" for a flag without a value and
// would eat the next argument, so the empty value is handed over as an argument of its own.
std::vector<std::string> arguments_reversed(int argc, const char* const* argv) {
  std::vector<std::string> reversed;
  for (int i = argc - 1; i > 0; --i) {
    std::string argument = argv[i];
    if (argument.starts_with("--") && argument.find('=') == argument.size() - 1) {
      reversed.emplace_back();
      argument.pop_back();
    }
    reversed.push_back(std::move(argument));
  }
  return reversed;
}

Status split_command_line(CLI::App& app, int argc, const char* const* argv) {
  app.allow_extras();
  try {
    app.parse(arguments_reversed(argc, argv));
  } catch (const CLI::ParseError& failure) {
    std::string why = failure.what();
    std::replace(why.begin(), why.end(), '\n', ' ');
    return error("F100", why);
  }
  const std::vector<std::string> extras = app.remaining();
  return extras.empty() ? Status() : unknown_argument(app, extras.front());
}

void print(const std::string& text) { std::fputs(text.c_str(), stdout); }

}  // namespace

OptionTable::OptionTable(std::string section, std::string summary)
    : section_(std::move(section)), summary_(std::move(summary)) {}

OptionTable::~OptionTable() = default;

void OptionTable::add(std::string name, std::string* value, std::string sentence) {
  options_.push_back(std::make_unique<Option>(
      OptionValue{.name = std::move(name), .sentence = std::move(sentence), .target = value}));
}

void OptionTable::add(std::string name, bool* value, std::string sentence) {
  options_.push_back(std::make_unique<Option>(
      OptionValue{.name = std::move(name), .sentence = std::move(sentence), .target = value}));
}

void OptionTable::add(std::string name, int64_t* value, int64_t min, int64_t max,
                      std::string sentence) {
  GRADBUS_CHECK(min <= *value && *value <= max);
  options_.push_back(std::make_unique<Option>(OptionValue{.name = std::move(name),
                                                          .sentence = std::move(sentence),
                                                          .target = value,
                                                          .min = min,
                                                          .max = max}));
}

Result<bool> OptionTable::parse(int argc, const char* const* argv) {
  CLI::App app(summary_, "gradbus-" + section_);
  app.footer("Each option is also a key of table [" + section_ + "] in the --config file and a " +
             "variable GRADBUS_..., weaker than the flag.");
  CommonFlags common;
  common.declare(app);
  for (const auto& option : options_) option->declare(app);
  GRADBUS_RETURN_IF_ERROR(split_command_line(app, argc, argv));
  if (common.help) return print(wrap_lines(app.help())), false;
  if (common.version) return print("gradbus-" + section_ + " " GRADBUS_VERSION "\n"), false;
  GRADBUS_RETURN_IF_ERROR(apply(common.config));
  if (common.print_config) return print(print_config()), false;
  return true;
}

Status OptionTable::apply(const std::string& config_path) {
  if (!config_path.empty()) {
    std::vector<OptionValue*> values;
    for (const auto& option : options_) values.push_back(option.get());
    GRADBUS_RETURN_IF_ERROR(apply_option_file(config_path, section_, values));
  }
  for (const auto& option : options_) GRADBUS_RETURN_IF_ERROR(apply_variable(section_, *option));
  for (const auto& option : options_) GRADBUS_RETURN_IF_ERROR(option->apply_flag());
  return {};
}

std::map<std::string, std::string> OptionTable::values() const {
  std::map<std::string, std::string> values;
  for (const auto& option : options_) values[option->name] = option->toml();
  return values;
}

std::string OptionTable::print_config() const {
  std::string text = "[" + section_ + "]\n";
  for (const auto& option : options_) {
    text += option->key() + " = " + option->toml() + "  # " + option->origin + "\n";
  }
  return text;
}

}  // namespace gradbus
