// SPDX-License-Identifier: Apache-2.0
//
#include <cohort/core/ids.hpp>

#include <doctest/doctest.h>

#include <concepts>
#include <cstdint>
#include <limits>
#include <support/complaint.hpp>
#include <type_traits>

namespace cohort::ids_test {
namespace {

static_assert(!std::convertible_to<std::uint32_t, model_id>);
static_assert(!std::convertible_to<model_id, std::uint32_t>);
static_assert(!std::constructible_from<model_id, device_id>);
static_assert(!std::equality_comparable_with<model_id, device_id>);
static_assert(!std::is_assignable_v<model_id&, device_id>);
static_assert(std::is_trivially_copyable_v<model_id>);
static_assert(sizeof(model_id) == 4 && sizeof(device_id) == 4 && sizeof(request_id) == 8);

TEST_CASE("a default id is zero") {
  CHECK(model_id{}.value() == 0);
  CHECK(request_id{}.value() == 0);
}

TEST_CASE("an id gives back its number, as a value and as an index") {
  CHECK(device_id{17}.value() == 17);
  CHECK(device_id{17}.index() == std::size_t{17});
  constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();
  CHECK(request_id{largest}.value() == largest);
}

TEST_CASE("ids order as their numbers do") {
  CHECK(model_id{1} < model_id{2});
  CHECK(model_id{2} == model_id{2});
  CHECK(model_id{3} != model_id{2});
  CHECK(request_id{1ULL << 40} > request_id{2});
}

TEST_CASE("a device share is the whole device unless told otherwise") {
  CHECK(device_share{}.percent() == 100);
  CHECK(device_share{}.fraction() == 1.0);
}

TEST_CASE("a device share accepts 1 to 100 percent and refuses everything else") {
  CHECK(device_share{1}.fraction() == 0.01);
  CHECK(device_share{100} == device_share{});
  CHECK(device_share{25}.fraction() == 0.25);
  CHECK(device_share{20} < device_share{50});
  CHECK(test::gist_of<config_error>([&] { (void)device_share{0}; }) ==
        "device_share: percent ... 1 to 100");
  CHECK_THROWS_AS(device_share{101}, config_error);
  CHECK_THROWS_AS(device_share{std::numeric_limits<unsigned>::max()}, config_error);
}

}  // namespace
}  // namespace cohort::ids_test
