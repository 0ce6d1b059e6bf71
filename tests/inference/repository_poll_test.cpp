// SPDX-License-Identifier: Apache-2.0
#include <inference/repository_poll.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace cohort::inference::repository_poll_test {
namespace {

using names = std::vector<std::string>;

TEST_CASE("new and changed models are loaded, removed ones unloaded, others left alone") {
  const repository_stamps before{{"changed", "1"}, {"gone", "2"}, {"same", "3"}, {"to_retry", ""}};
  const repository_stamps now{
      {"another", "2"}, {"changed", "4"}, {"new", "1"}, {"same", "3"}, {"to_retry", "5"}};
  const repository_changes c = changes_between(before, now);
  CHECK(c.to_load == names{"another", "changed", "new", "to_retry"});
  CHECK(c.to_unload == names{"gone"});
  CHECK(changes_between(now, now).to_load.empty());
  CHECK(changes_between(now, now).to_unload.empty());
  CHECK(changes_between({}, now).to_load.size() == 5);
  CHECK(changes_between(before, {}).to_unload == names{"changed", "gone", "same", "to_retry"});
}

TEST_CASE("a model's stamp is another one with its config, its versions or a file of them") {
  formats::repository_model m{.name = "m", .stamp = "c1"};
  m.versions = {{.number = 1, .stamp = "f1"}, {.number = 3, .stamp = "f3"}};
  const std::string first = stamp_of(m);
  CHECK(first == "config c1\n1 f1\n3 f3");
  auto other = m;
  other.stamp = "c2";
  CHECK(stamp_of(other) != first);
  other = m;
  other.versions[1].stamp = "f4";
  CHECK(stamp_of(other) != first);
  other = m;
  other.versions[1].number = 4;
  CHECK(stamp_of(other) != first);
  other = m;
  other.versions.pop_back();
  CHECK(stamp_of(other) != first);
  CHECK(stamp_of(m) == first);
  CHECK_FALSE(stamp_of({}).empty());
}

}  // namespace
}  // namespace cohort::inference::repository_poll_test
