// The long text of each error, for `gradbus explain`: one row for each row of common/errors.cc.
#pragma once

#include <span>
#include <string_view>

namespace gradbus {

struct ErrorPage {
  std::string_view id;
  std::string_view cause;    // what happened, and how that comes about
  std::string_view fault;    // who can end it: the program, its launch, the administrator, ...
  std::string_view steps;    // what to do, in order
  std::string_view example;  // a case and its remedy
};

std::span<const ErrorPage> cluster_error_pages();  // A, C, D, F, H
std::span<const ErrorPage> job_error_pages();      // J, M, O, P, S, V, X

// nullptr: the error has no page, which is a defect that cli_test finds.
const ErrorPage* find_error_page(std::string_view id);

}  // namespace gradbus
