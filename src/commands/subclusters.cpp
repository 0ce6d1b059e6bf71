// SPDX-License-Identifier: Apache-2.0
#include <drawings/table.hpp>
#include <formats/csv.hpp>
#include <formats/json_reader.hpp>
#include <formats/json_writer.hpp>
#include <formats/text.hpp>
#include <registry/name_table.hpp>
#include "commands.hpp"
#include "progress.hpp"

#include <cohort/packing/subclusters/subcluster_exact.hpp>
#include <cohort/packing/subclusters/subcluster_moves.hpp>
#include <cohort/packing/subclusters/subcluster_search.hpp>

#ifdef COHORT_HAS_CBC
#include <packing/subcluster_cbc.hpp>
#endif

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cohort::commands {
namespace {

constexpr number_range amounts{.low = 0, .high = 1e12};
constexpr number_range positive_amounts{.low = 0, .high = 1e15, .above_low = true};
constexpr number_range limits_s{.low = 0, .high = 1e6, .above_low = true};
constexpr integer_range counts{.low = 1, .high = 100'000};
constexpr std::size_t most_models = 1'000'000;
// A complete search of this many nodes takes about a second.
constexpr std::uint64_t most_nodes = 3'000'000;
constexpr std::size_t few_models = 20;

struct named_models {
  std::vector<std::string> names;
  std::unordered_map<std::string, std::size_t> index;
};

/// Reads the file's models into the problem; returns their names.
named_models read_models(const std::string& path, packing::subcluster_problem& p) {
  const std::string file = input_name(path);
  const std::string text = read_file(path);
  const std::string_view header = std::string_view{text}.substr(0, text.find('\n'));
  const bool costs = header.find("move_cost") != std::string_view::npos;
  csv_reader csv =
      costs ? csv_reader{file, text, {"name", "rate_rps", "static_mb", "dynamic_mb", "move_cost"}}
            : csv_reader{file, text, {"name", "rate_rps", "static_mb", "dynamic_mb"}};
  named_models named;
  while (csv.next()) {
    if (csv.field(0).empty()) fail(csv.place(0), "\"\"", "a name that is not empty");
    if (!named.index.emplace(csv.field(0), named.names.size()).second) {
      fail(csv.place(0), quote_short(csv.field(0)), "names that differ from model to model");
    }
    if (named.names.size() == most_models) {
      throw input_error{
          fmt::format("{}: too large: expected at most {} models", file, most_models)};
    }
    named.names.push_back(csv.field(0));
    const auto number = [&csv](std::size_t i) {
      return parse_number(csv.place(i), csv.field(i), amounts);
    };
    p.models.push_back({.rate_rps = number(1),
                        .static_mb = number(2),
                        .dynamic_mb = number(3),
                        .move_cost = costs ? number(4) : 1});
  }
  if (named.names.empty()) throw input_error{file + ": no rows: expected at least one model"};
  return named;
}

/// The current assignment: an object of sub-clusters by model, or an answer of this command.
void read_current(const std::string& path, const named_models& named,
                  packing::subcluster_problem& p) {
  const std::string file = input_name(path);
  const json_value document = parse_json(file, read_file(path));
  const json_cursor root{file, document};
  const auto inner = root.find("assignment");
  const bool answer = inner && inner->value().type == json_value::kind::object;
  const json_cursor at = answer ? *inner : root;
  constexpr auto none = static_cast<std::uint32_t>(-1);
  p.current.assign(named.names.size(), none);
  for (const auto& [name, cell] : at.members("an object with the sub-cluster of each model")) {
    const auto i = named.index.find(std::string{name});
    if (i == named.index.end()) fail(at.place(), quote_short(name), "models of the CSV file");
    p.current[i->second] =
        static_cast<std::uint32_t>(cell.integer({.low = 0, .high = p.count - 1}));
  }
  for (std::size_t i = 0; i < named.names.size(); ++i) {
    if (p.current[i] != none) continue;
    throw input_error{fmt::format("{}: model {}: missing: expected the sub-cluster of each model",
                                  at.place(), quote_short(named.names[i]))};
  }
}

struct answer {
  const char* status = "unknown";
  std::string reason{};
  packing::subcluster_assignment assignment{};
  double bound = 0;
  double seconds = 0;
};

std::string why_impossible(const packing::subcluster_problem& p, const named_models& named) {
  return packing::why_impossible(p, [&](std::size_t i) { return quote_short(named.names[i]); });
}

answer solve(const packing::subcluster_problem& p, const named_models& named, double limit_s,
             std::uint64_t seed) {
  using clock = std::chrono::steady_clock;
  const clock::time_point start = clock::now();
  const auto seconds = [start] {
    return std::chrono::duration<double>(clock::now() - start).count();
  };
  answer a{.bound = packing::subcluster_bound(p)};
  a.reason = why_impossible(p, named);
  if (!a.reason.empty()) {
    a.status = "infeasible";
    a.seconds = seconds();
    return a;
  }
  if (p.models.size() <= few_models) {
    packing::subcluster_proof proof = packing::subcluster_exact{p, most_nodes}.solve();
    if (proof.complete) {
      a.status = proof.best.empty() ? "infeasible" : "optimal";
      if (proof.best.empty())
        a.reason = "every assignment breaks a cap";
      else
        a.bound = proof.objective;
      a.assignment = std::move(proof.best);
      a.seconds = seconds();
      return a;
    }
  }
  packing::subcluster_search search{p, seed};
  {
    progress_bar bar{"subclusters", "s"};
    packing::improve(search, [&] {
      const double part = seconds() / limit_s;
      bar.update(std::min(part, 1.0), seconds());
      return part;
    });
  }
  a.seconds = seconds();
  if (!search.found()) {
    a.reason = "no assignment within the caps was found in the time given";
    return a;
  }
  a.assignment = search.best();
  a.status = packing::evaluate(p, a.assignment).objective <= a.bound ? "optimal" : "feasible";
  return a;
}

#ifdef COHORT_HAS_CBC
answer solve_by_program(const packing::subcluster_problem& p, const named_models& named,
                        double limit_s, std::uint64_t /*seed*/) {
  constexpr const char* names[] = {"optimal", "feasible", "infeasible", "unknown"};
  using clock = std::chrono::steady_clock;
  const clock::time_point start = clock::now();
  packing::cbc_answer found = packing::solve_with_cbc(p, limit_s);
  answer a{.status = names[static_cast<std::size_t>(found.what)],
           .assignment = std::move(found.best),
           .bound = std::max(found.bound, packing::subcluster_bound(p)),
           .seconds = std::chrono::duration<double>(clock::now() - start).count()};
  if (found.what == packing::cbc_answer::status::infeasible) {
    a.reason = why_impossible(p, named);
    if (a.reason.empty()) a.reason = "every assignment breaks a cap";
  } else if (a.assignment.empty()) {
    a.reason = "no assignment within the caps was found in the time given";
  }
  return a;
}
constexpr auto by_program = solve_by_program;
#else
constexpr decltype(&solve) by_program = nullptr;
#endif

/// The values of --solver. A solver not included in this build has no function.
constexpr name_table solvers{row{"search", "local search; exact for few models", solve},
                             row{"cbc", "COIN-OR CBC, if this build has it", by_program}};

/// @throws input_error If there is no such solver, or this build does not include it.
auto choose_solver(const std::string& name) {
  const auto solver = solvers.visit(solver_names().choose("--solver", name).row,
                                    [](const auto& r) { return r.make; });
  if (solver == nullptr) {
    fail("--solver", quote_short(name), fmt::format("search; {} is not part of this build", name));
  }
  return solver;
}

/// A line for each sub-cluster with the names of its models, as many as fit.
std::string members_text(std::uint32_t count, const named_models& named,
                         const packing::subcluster_assignment& assignment) {
  constexpr std::size_t width = 110;
  std::vector<std::vector<std::size_t>> members(count);
  for (std::size_t i = 0; i < assignment.size(); ++i) members[assignment[i]].push_back(i);
  std::string text;
  for (std::uint32_t j = 0; j < count; ++j) {
    std::string line = fmt::format("{}:", j);
    std::size_t shown = 0;
    for (const std::size_t i : members[j]) {
      if (shown > 0 && line.size() + named.names[i].size() > width) break;
      line += fmt::format("{} {}", shown++ > 0 ? "," : "", named.names[i]);
    }
    if (shown == 0) line += " none";
    if (shown < members[j].size()) {
      line += fmt::format(" and {} more (--json names all)", members[j].size() - shown);
    }
    text += line + '\n';
  }
  return text;
}

}  // namespace

const name_list& solver_names() {
  static const name_list names = solvers.list();
  return names;
}

int subclusters_command(const subclusters_options& o) {
  packing::subcluster_problem p;
  p.count = static_cast<std::uint32_t>(parse_integer("--count", o.count, counts));
  p.memory_mb = parse_number("--memory-mb", o.memory_mb, positive_amounts);
  p.rate_cap_rps = parse_number("--rate-cap", o.rate_cap, positive_amounts);
  if (o.weight) p.weight = parse_number("--weight", *o.weight, amounts);
  const double limit_s = parse_number("--time-limit-s", o.time_limit_s, limits_s);
  const std::uint64_t seed = parse_integer("--seed", o.seed, integer_range{});
  const auto solver = choose_solver(o.solver);
  if (o.max_move_cost) {
    if (!o.current) {
      fail("--max-move-cost", quote_short(*o.max_move_cost), "--current with it");
    }
    p.max_move_cost = parse_number("--max-move-cost", *o.max_move_cost, amounts);
  }
  const named_models named = read_models(o.file, p);
  if (o.current) read_current(*o.current, named, p);

  answer a = solver(p, named, limit_s, seed);
  const bool found = !a.assignment.empty();
  if (found) a.assignment = packing::with_fewest_moves(p, std::move(a.assignment));
  const packing::subcluster_value v =
      found ? packing::evaluate(p, a.assignment) : packing::subcluster_value{};
  if (o.json) {
    json_writer out;
    out.begin_object().field("status", a.status).key("reason");
    a.reason.empty() ? out.null() : out.value(a.reason);
    out.key("objective");
    found ? out.value(v.objective) : out.null();
    out.field("bound", a.bound).field("seconds", a.seconds).key("imbalance");
    if (found) {
      out.begin_object(json_writer::layout::line)
          .field("rate", v.rate_imbalance)
          .field("memory", v.memory_imbalance)
          .end_object();
    } else {
      out.null();
    }
    out.field("move_cost", v.move_cost).key("assignment");
    if (found) {
      out.begin_object();
      for (std::size_t i = 0; i < named.names.size(); ++i) {
        out.field(named.names[i], a.assignment[i]);
      }
      out.end_object();
    } else {
      out.null();
    }
    print(out.end_object().take());
  } else if (found) {
    const packing::detail::subcluster_sums sums{p, a.assignment};
    std::vector<std::size_t> members(p.count, 0);
    for (const std::uint32_t j : a.assignment) ++members[j];
    table t{{"sub-cluster", "models", "r/s", "static MB", "largest dynamic MB"}};
    for (std::uint32_t j = 0; j < p.count; ++j) {
      t.add({fmt::to_string(j), fmt::to_string(members[j]), decimal(sums.rate[j], 2),
             decimal(sums.memory[j], 2), decimal(sums.dynamic[j], 2)});
    }
    print(fmt::format(
        "{}: objective {}, at least {}; imbalance of rates {}, of memory {}{}\n\n{}\n{}", a.status,
        decimal(v.objective, 4), decimal(a.bound, 4), percent(v.rate_imbalance),
        percent(v.memory_imbalance),
        p.current.empty() ? "" : fmt::format("; moves cost {}", decimal(v.move_cost, 2)), t.text(),
        members_text(p.count, named, a.assignment)));
  } else {
    print(fmt::format("{}: {}\n", a.status, a.reason));
  }
  return found ? 0 : 1;
}

}  // namespace cohort::commands
