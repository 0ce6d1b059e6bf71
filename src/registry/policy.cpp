// SPDX-License-Identifier: Apache-2.0
#include "policy.hpp"

#include <formats/text.hpp>

#include <algorithm>
#include <utility>

namespace cohort::registry {
using namespace formats;
namespace {

policy parse_policy(std::string_view name, const std::optional<std::string>& gather) {
  constexpr std::string_view timeout = "timeout:";
  constexpr std::string_view known = "deferred, adaptive, eager or timeout:F";
  policy p{.name = std::string{name}};
  if (name == "deferred") {
    p.when = policy::window::deferred;
  } else if (name == "adaptive") {
    p.when = policy::window::adaptive;
  } else if (name == "eager") {
    p.when = policy::window::eager;
    p.who = policy::gather::head;
  } else if (name.starts_with(timeout)) {
    p.when = policy::window::timeout;
    p.who = policy::gather::head;
    const auto fraction = to_number(name.substr(timeout.size()));
    if (!fraction || *fraction < 0 || *fraction > 1) {
      fail("--policy", quote_short(name), "timeout:F, where F is a part of the SLO from 0 to 1");
    }
    p.fraction = *fraction;
  } else {
    fail("--policy", quote_short(name), known);
  }
  if (gather) {
    if (p.when == policy::window::adaptive) {
      fail("--gather", *gather, "no --gather with adaptive, which has a rule of its own");
    }
    p.who = *gather == "head" ? policy::gather::head : policy::gather::drop_head;
  }
  return p;
}

}  // namespace

std::vector<policy> parse_policies(std::string_view list,
                                   const std::optional<std::string>& gather) {
  if (gather && *gather != "head" && *gather != "drop-head") {
    fail("--gather", quote_short(*gather), "head or drop-head");
  }
  std::vector<policy> out;
  for (;;) {
    const std::size_t comma = list.find(',');
    policy p = parse_policy(list.substr(0, comma), gather);
    if (std::ranges::find(out, p.name, &policy::name) != out.end()) {
      fail("--policy", quote_short(p.name), "each policy once");
    }
    out.push_back(std::move(p));
    if (comma == std::string_view::npos) return out;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace cohort::registry
