// SPDX-License-Identifier: Apache-2.0
#include <registry/decode_tables.hpp>

#include <doctest/doctest.h>
#include <registry/admission.hpp>

#include <cohort/sim/llm/method_simulation.hpp>

#include <chrono>
#include <string>
#include <support/complaint.hpp>
#include <vector>

namespace cohort::registry::decode_tables_test {
namespace {
using namespace std::chrono_literals;

/// What a row stands for.
constexpr auto made = [](const auto& row) { return row.make; };

TEST_CASE("every method, pick and kernel produces every token") {
  const std::vector<sim::decode_request> requests{
      {.prompt = 5, .output = 3}, {.prompt = 2, .output = 4}, {.prompt = 9, .output = 2}};
  for (std::size_t m = 0; m < decode_methods.list().all().size(); ++m) {
    for (std::size_t p = 0; p < decode_picks.list().all().size(); ++p) {
      for (std::size_t k = 0; k < decode_kernels.list().all().size(); ++k) {
        const sim::decode_options o{.method = decode_methods.visit(m, made),
                                    .batch = 2,
                                    .pick = decode_picks.visit(p, made),
                                    .ragged = decode_kernels.visit(k, made)};
        CAPTURE(std::string{sim::to_string(o.method)});
        CAPTURE(p);
        CAPTURE(k);
        const sim::decode_result r = sim::method_simulation{requests, o}.run([](std::uint64_t) {});
        CHECK(r.useful_tokens == 9);
        for (const time_point t : r.finish) CHECK(t > time_point{});
      }
    }
  }
}

TEST_CASE("methods have the names that the library gives them") {
  for (std::size_t i = 0; i < decode_methods.list().all().size(); ++i) {
    CHECK(decode_methods.list().all()[i].name == sim::to_string(decode_methods.visit(i, made)));
  }
}

TEST_CASE("every admission serves requests that have time") {
  const std::vector<sim::decode_request> requests{
      {.prompt = 5, .output = 3}, {.prompt = 2, .output = 4}, {.prompt = 9, .output = 2}};
  for (const listed_name& n : admission_names().all()) {
    INFO(n.sample());
    const choice c = admission_names().choose("--admission", n.sample());
    const sim::service_result r =
        serve(c, requests, {.slots = 4, .first_token = 1s, .between_tokens = 1s});
    CHECK(r.good == 3);
    CHECK(r.dropped == 0);
  }
  CHECK(test::gist_of<formats::input_error>([&] {
          (void)admission_names().choose("--admission", "lifo");
        }) == "--admission: bad value");
}

TEST_CASE("deferred admission gives up nobody whom slo serves, and waits longer") {
  // One at a time in the window: the first token of a lone prompt comes when it must, not at once.
  const std::vector<sim::decode_request> one{{.prompt = 1, .output = 1}};
  const sim::service_options o{.slots = 4, .first_token = 100ms};
  const auto first = [&](const char* name) {
    return serve(admission_names().choose("--admission", name), one, o).outcomes[0].first_token;
  };
  CHECK(first("slo") < first("deferred"));
  CHECK(first("deferred") <= time_point{} + 100ms);
}

}  // namespace
}  // namespace cohort::registry::decode_tables_test
