// SPDX-License-Identifier: Apache-2.0
#include "policy.hpp"

#include <formats/text.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "policies.hpp"

namespace cohort::registry {
using namespace formats;
namespace {

struct row_gather {
  std::size_t row;
  bool is_fixed;
};

row_gather gather_of(std::size_t policy) {
  return policies.visit(policy, []<class Row>(const Row&) {
    using gather = decltype(Row::gather);
    return row_gather{gathers.row_of<decltype(gather::rule)>(), gather::is_fixed};
  });
}

}  // namespace

const name_list& policy_names() {
  static const name_list names = policies.list();
  return names;
}

const name_list& gather_names() {
  static const name_list names = gathers.list();
  return names;
}

std::string default_gathers() {
  std::string out;
  for (std::size_t i = 0; i < policy_names().all().size(); ++i) {
    const row_gather g = gather_of(i);
    out += fmt::format("{}{}: {}{}", i == 0 ? "" : "; ", policy_names().all()[i].name,
                       g.is_fixed ? "always " : "", gather_names().all()[g.row].name);
  }
  return out;
}

std::vector<policy> parse_policies(std::string_view list,
                                   const std::optional<std::string>& gather) {
  std::optional<std::size_t> chosen;
  if (gather) chosen = gather_names().choose("--gather", *gather).row;
  std::vector<policy> out;
  for (choice& c : policy_names().choose_all("--policy", list)) {
    if (std::ranges::find(out, c.name, &policy::name) != out.end()) {
      fail("--policy", quote_short(c.name), "each policy once");
    }
    const row_gather own = gather_of(c.row);
    if (chosen && own.is_fixed) {
      fail("--gather", *gather,
           fmt::format("no --gather with {}, which has a rule of its own", c.name));
    }
    out.push_back({std::move(c), chosen.value_or(own.row)});
  }
  return out;
}

}  // namespace cohort::registry
