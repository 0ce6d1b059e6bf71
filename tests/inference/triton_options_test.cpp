// SPDX-License-Identifier: Apache-2.0
#include <inference/triton_options.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <support/scratch_file.hpp>

namespace cohort::inference::triton_options_test {
namespace {

using texts = std::vector<std::string>;

/// What is made of an option alone, without the defaults of others.
texts made_of(const texts& arguments) {
  texts all = from_triton(arguments).arguments;
  const texts usual = from_triton({}).arguments;
  for (std::size_t i = 0; i < usual.size(); i += 2) {  // Each an option and its value.
    const auto at = std::ranges::search(all, texts{usual[i], usual[i + 1]});
    all.erase(at.begin(), at.end());
  }
  return all;
}

/// By option: ours, where it is another one.
const std::map<std::string, std::string> renamed{{"--model-repository", "--repository"},
                                                 {"--http-port", "--port"},
                                                 {"--http-address", "--host"},
                                                 {"--metrics-port", "--management-port"},
                                                 {"--repository-poll-secs", "--repository-poll-s"},
                                                 {"--exit-timeout-secs", "--drain-timeout-s"}};

TEST_CASE("every row of the page is an option of the table, in its order, and does what it says") {
  const std::string page = test::slurp(SOURCE_DIR "/docs/migrate.md");
  std::size_t at = page.find("\n| option of tritonserver | here | meaning |\n");
  REQUIRE(at != std::string::npos);
  at = page.find('\n', page.find('\n', at + 1) + 1) + 1;
  for (const triton_option& o : triton_options()) {
    CAPTURE(o.name);
    const std::string row = page.substr(at, page.find('\n', at) - at);
    at += row.size() + 1;
    const bool is_ignored = o.is == triton_option::use::ignored;
    const auto name = renamed.find(o.name);
    const std::string here = is_ignored              ? "no effect"
                             : name == renamed.end() ? "`" + o.name + "`"
                                                     : "`" + name->second + "`";
    CHECK(row.starts_with("| `" + o.name + "` | " + here + " | "));
    // As two arguments, and as one.
    const std::string ours = name == renamed.end() ? o.name : name->second;
    if (!o.has_value) {
      CHECK(made_of({o.name, "--seed"}) == texts{"--seed"});
      continue;
    }
    CHECK(made_of({o.name, "7", "--last"}) ==
          (is_ignored ? texts{"--last"} : texts{ours, "7", "--last"}));
    CHECK(made_of({o.name + "=7", "--last"}) ==
          (is_ignored ? texts{"--last"} : texts{ours + "=7", "--last"}));
    const auto named = from_triton({o.name + "=7"});
    CHECK(named.ignored == (is_ignored ? texts{o.name} : texts{}));
    CHECK(named.given_as.contains(ours) == (name != renamed.end()));
  }
  CHECK(page[at] == '\n');  // No more rows.
}

TEST_CASE("what is not given is as tritonserver has it, under either name") {
  CHECK(from_triton({"--triton-compatible"}).arguments ==
        texts{"--triton-compatible", "--host", "0.0.0.0", "--management-port", "8002",
              "--model-control-mode", "none", "--drain-timeout-s", "30"});
  CHECK(from_triton({"--http-address=::1", "--management-port", "9", "--model-control-mode=poll",
                     "--drain-timeout-s=5"})
            .arguments == texts{"--host=::1", "--management-port", "9", "--model-control-mode=poll",
                                "--drain-timeout-s=5"});
}

TEST_CASE(
    "options of ours and unknown ones stay as they are, and one without effect is named once") {
  const triton_command c = from_triton(
      {"--bogus=1", "--backend-config=a,b=c", "--backend-config", "d,e=f", "--devices", "2"});
  CHECK(texts{c.arguments.begin(), c.arguments.begin() + 3} ==
        texts{"--bogus=1", "--devices", "2"});
  CHECK(c.ignored == texts{"--backend-config"});
  CHECK(c.given_as.empty());
}

}  // namespace
}  // namespace cohort::inference::triton_options_test
