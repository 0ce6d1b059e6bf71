// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/server_settings.hpp>

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <support/complaint.hpp>
#include <variant>

namespace cohort::serve::server_settings_test {
namespace {

std::string why_not(std::string_view body) {
  const auto r = parse_log_settings(body, {});
  const auto* const e = std::get_if<protocol_error>(&r);
  if (e == nullptr) return {};
  CHECK(e->status == 400);
  return e->message;
}
std::string why_no_trace(std::string_view body) {
  const auto e = check_trace_settings(body);
  if (e) CHECK(e->status == 400);
  return e ? e->message : "";
}

TEST_CASE("the levels of a log are switched one by one, and shown") {
  const auto asked = parse_log_settings(R"({"log_info": false, "log_error": true})",
                                        {.info = true, .warning = false, .error = false});
  const log_levels expected{.info = false, .warning = false, .error = true};
  CHECK(std::get<log_levels>(asked) == expected);
  CHECK(write_log_settings(expected) ==
        R"({"log_file":"","log_info":false,"log_warning":false,"log_error":true,)"
        R"("log_verbose_level":0,"log_format":"default"})");
  CHECK(std::get<log_levels>(parse_log_settings("{}", expected)) == expected);
}

TEST_CASE("what a client reads of a log it may write back") {
  const log_levels now{.info = false};
  CHECK(std::get<log_levels>(parse_log_settings(write_log_settings(now), {})) == now);
  CHECK(why_no_trace(trace_settings()).empty());
}

TEST_CASE("a setting of the log that cannot be had is refused by its name") {
  CHECK(why_not(R"({"log_verbose_level": 1})") ==
        R"(log_verbose_level is "1", expected "0": there are no verbose lines)");
  CHECK(why_not(R"({"log_info": false, "log_file": "/tmp/log"})") ==
        R"(log_file is "/tmp/log", expected "": the log is written to standard error)");
  CHECK(why_not(R"({"log_format": "ISO8601"})") ==
        R"(log_format is "ISO8601", expected "default": lines of the log have one format)");
  CHECK(test::gist{why_not(R"({"log_info": "off"})")} == "log_info ... boolean ... string");
  CHECK(why_not(R"({"log_infos": true})") == R"("log_infos" is unknown)");
  CHECK(test::gist{why_not("[]")} == "... body ... object ... array");
  CHECK(test::gist{why_not("")} == "... body ... JSON");
  CHECK(why_not(R"({"log_file": ")" + std::string(10'000, 'x') + "\"}").size() < 200);
}

TEST_CASE("traces may be asked for as they are: there are none") {
  for (const char* good : {"{}", R"({"trace_level": ["OFF"]})", R"({"trace_level": "OFF"})",
                           R"({"trace_level": null, "trace_rate": null})",
                           R"({"trace_rate": "1000", "trace_count": -1})",
                           R"({"trace_file": "", "log_frequency": "0", "trace_mode": "triton"})"}) {
    CAPTURE(good);
    CHECK(why_no_trace(good).empty());
  }
  CHECK(why_no_trace(R"({"trace_level": ["TIMESTAMPS"]})") ==
        R"(trace_level is "TIMESTAMPS", expected "OFF": no traces are written)");
  CHECK(why_no_trace(R"({"trace_level": ["OFF", "TENSORS"]})") ==
        R"(trace_level is "OFF,TENSORS", expected "OFF": no traces are written)");
  CHECK(why_no_trace(R"({"trace_rate": 1})") ==
        R"(trace_rate is "1", expected "1000": no traces are written)");
  CHECK(why_no_trace(R"({"level": 1})") == R"("level" is unknown)");
}

}  // namespace
}  // namespace cohort::serve::server_settings_test
