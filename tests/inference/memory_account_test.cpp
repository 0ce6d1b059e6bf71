// SPDX-License-Identifier: Apache-2.0
#include <inference/memory_account.hpp>

#include <doctest/doctest.h>
#include <support/complaint.hpp>

namespace cohort::inference::memory_account_test {
namespace {

TEST_CASE("a share counts until its last copy is gone, and what does not fit is refused") {
  memory_account all{10'000'000};
  memory_account::share first = all.take("a", 6'000'000);
  CHECK(test::gist_of<resource_error>([&] { (void)all.take("b", 4'000'001); }) ==
        "model 'b' ... 5 MB ... 6 of 10 MB (--model-memory-mb)");
  CHECK_NOTHROW((void)all.take("b", 4'000'000));  // And gives it back.
  memory_account::share copy = first;
  first.reset();
  CHECK_THROWS_AS((void)all.take("b", 4'000'001), resource_error);
  copy.reset();
  CHECK_NOTHROW((void)all.take("b", 10'000'000));
  CHECK_THROWS_AS((void)all.take("b", ~std::uint64_t{0}), resource_error);
}

}  // namespace
}  // namespace cohort::inference::memory_account_test
