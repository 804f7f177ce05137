// `gradbus explain` has a page for every error, and the page adds to the error's own line.
#include "cli/commands/error_pages.h"

#include <gtest/gtest.h>

#include <set>

#include "common/errors.h"

namespace gradbus {
namespace {

TEST(ErrorPages, NoErrorLacksOne) {
  for (const ErrorInfo& info : all_errors()) {
    const ErrorPage* page = find_error_page(info.id);
    ASSERT_NE(page, nullptr) << "add a page for " << info.id << " to cli/error_pages_*.cc";
    for (const std::string_view text : {page->cause, page->fault, page->steps, page->example})
      EXPECT_GE(text.size(), 8u) << info.id;
    EXPECT_NE(page->cause, info.meaning) << info.id << " repeats the error's own text";
    EXPECT_NE(page->steps, info.next) << info.id << " repeats the error's own text";
  }
}

TEST(ErrorPages, EachIsOfAnErrorAndThereOnce) {
  std::set<std::string_view> seen;
  for (const auto pages : {cluster_error_pages(), job_error_pages()})
    for (const ErrorPage& page : pages) {
      EXPECT_NE(find_error(page.id), nullptr) << page.id;
      EXPECT_TRUE(seen.insert(page.id).second) << page.id;
    }
}

}  // namespace
}  // namespace gradbus
