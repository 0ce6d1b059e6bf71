// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/slicer.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>
#include <cohort/runtime/host.hpp>
#include <cohort/runtime/onnx/library.hpp>
#include <cohort/runtime/tensor.hpp>
#include <cohort/sim/staged/stage_trial.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <drawings/table.hpp>
#include <formats/json_writer.hpp>
#include <formats/onnx_cuts.hpp>
#include <formats/onnx_graph.hpp>
#include <formats/pipeline_file.hpp>
#include <formats/text.hpp>
#include <models/identity.hpp>
#include <models/measure_rows.hpp>
#include <models/measured_model.hpp>
#include <models/onnx_factory.hpp>
#include <models/registry.hpp>
#include "commands.hpp"
#include "onnx_file.hpp"
#include "onnx_pieces.hpp"
#include "progress.hpp"

namespace cohort::commands {
namespace {

namespace fs = std::filesystem;
using layout = json_writer::layout;
using operator_times = std::vector<std::vector<batching::batch_time>>;  // By operator.

struct slice_plan {
  std::string name;
  fs::path version{};      ///< Folder of the model and its stages.
  std::size_t wanted = 0;  ///< Stages; 0: found by trial.
  std::uint32_t largest_batch = 1;
  int repeats = 1;
  double stage_load = 0.6;
  std::optional<double> hand_over_ms{};
  double slo_ms = 0;  ///< 0: from the measurements.
  std::uint64_t seed = 1;
  piece_options pieces{};
};

/// A stage, or a piece, with its times.
struct stage_row {
  std::size_t nodes = 0;
  std::size_t pieces = 1;
  std::vector<std::string> tensors;  ///< Leaving it; empty: the model's outputs.
  std::size_t bytes = 0;             ///< Their bytes in a row.
};

struct sliced {
  std::vector<stage_row> pieces;
  std::vector<stage_row> stages;
  std::vector<std::uint32_t> sizes;         ///< Measured, ascending; {0} if the model has none.
  operator_times piece_times;               ///< At the largest size.
  std::vector<operator_times> times;        ///< Times of stages, by size.
  std::vector<operator_times> whole_times;  ///< By size; of one operator.
  models::row_cost row;
  sim::stage_trial trial;
  double difference = 0;  ///< Difference of answers.
};

slice_plan parse_slice(const slice_options& o) {
  slice_plan p{.name = o.name ? *o.name : models::name_of_onnx_file(o.file),
               .largest_batch = static_cast<std::uint32_t>(
                   parse_integer("--largest-batch", o.largest_batch, {.low = 1, .high = 1024})),
               .repeats = static_cast<int>(
                   parse_integer("--repeats", o.repeats, {.low = 3, .high = 100'000})),
               .stage_load = parse_number("--stage-load", o.stage_load,
                                          {.low = 0, .high = 0.99, .above_low = true}),
               .seed = parse_integer("--seed", o.seed, integer_range{})};
  if (!o.file.ends_with(".onnx")) {
    fail("MODEL", quote_short(o.file), "a file FILE.onnx");
  }
  if (!is_plain_name(p.name)) {
    fail(o.name ? "--name" : "MODEL", quote_short(o.name ? p.name : o.file),
         "a name of letters, digits, _, - and .");
  }
  if (o.stages != "auto") {
    if (!to_number(o.stages)) fail("--stages", quote_short(o.stages), "auto or an integer");
    p.wanted = parse_integer("--stages", o.stages, {.low = 1, .high = 64});
  }
  if (o.hand_over_ms) {
    p.hand_over_ms = parse_number("--hand-over-ms", *o.hand_over_ms, {.low = 0, .high = 1e6});
  }
  if (o.slo_ms) {
    p.slo_ms = parse_number("--slo-ms", *o.slo_ms, {.low = 0, .high = 1e7, .above_low = true});
  }
  p.pieces = {.name = p.name,
              .max_size = parse_max_length(o.max_length, o.file),
              .most_tensors = static_cast<std::size_t>(
                  parse_integer("--most-tensors", o.most_tensors, {.low = 1, .high = 64})),
              .most_pieces = static_cast<std::size_t>(
                  parse_integer("--most-pieces", o.most_pieces, {.low = 1, .high = 256}))};
  p.version = fs::path{o.out} / p.name / "1";
  return p;
}

/// Creates the folder, and reports unwritable files before minutes of measuring.
/// @returns Whether the model already exists there.
bool prepare_folder(const slice_options& o, const slice_plan& p, const std::string& model) {
  std::error_code error;
  fs::create_directories(o.out, error);
  if (error) throw input_error{fmt::format("--out: {}: {}", o.out, error.message())};
  for (const std::string& file : {p.name + ".json", p.name + ".stages.json"}) {
    check_writable((fs::path{o.out} / file).string());
  }
  const std::string there = (p.version / "model.onnx").string();
  if (!fs::exists(there)) return false;
  if (fs::equivalent(there, o.file, error) && !error) return true;
  if (read_onnx_file(there) != model) {
    fail("--out", quote_short(there), "no other model there than the one to cut");
  }
  return true;
}

/// Lengths to measure a model at.
std::vector<std::uint32_t> sizes_of(const runtime::model_interface& m) {
  return m.has_sizes() ? usual_sizes(m.max_size) : std::vector<std::uint32_t>{0};
}

/// Rows of samples as dense tensors.
dense_tensors sample_tensors(const runtime::model_interface& m, std::uint32_t rows,
                             std::uint32_t size, std::uint64_t seed) {
  const runtime::row_layout lies{m.inputs, m.max_size};
  dense_tensors out;
  for (const runtime::tensor_info& t : m.inputs) out.emplace_back(t.bytes(size) * rows);
  for (std::uint32_t r = 0; r < rows; ++r) {
    const std::vector<std::byte> row = models::sample_input(m, seed + r);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t bytes = m.inputs[i].bytes(size);
      std::memcpy(out[i].data() + r * bytes, row.data() + lies.offset(i), bytes);
    }
  }
  return out;
}

/// Compares results of the stages with those of the whole model, for a few batches of each size.
double compare(const onnx_pieces& model, const onnx_pieces::sessions& stages,
               const std::vector<std::uint32_t>& sizes, const slice_plan& p) {
  const runtime::model_interface& m = model.whole()->interface();
  double most = 0;
  for (const std::uint32_t size : sizes) {
    for (const std::uint32_t rows : {1U, std::min(3U, p.largest_batch), p.largest_batch}) {
      const std::uint32_t n = std::max(1U, size);
      const dense_tensors in = sample_tensors(m, rows, n, p.seed + 1024ULL * n);
      const dense_tensors expected = run_stages({model.whole()}, in, rows, n);
      most = std::max(most, difference(m.outputs, expected, run_stages(stages, in, rows, n)));
    }
  }
  return most;
}

std::vector<stage_row> rows_of(const onnx_pieces& model, const std::vector<onnx_cut>& cuts,
                               const std::vector<onnx_model>& stages) {
  std::vector<stage_row> rows;
  for (std::size_t k = 0; k < stages.size(); ++k) {
    stage_row& r = rows.emplace_back(stage_row{.nodes = stages[k].nodes.size(), .tensors = {}});
    if (k == cuts.size()) break;
    r.tensors = cuts[k].tensors;
    r.bytes = model.bytes(cuts[k]);
  }
  return rows;
}

/// Chooses the pieces of each stage.
batching::slicing choose(sliced& s, const slice_plan& p) {
  if (p.wanted > s.piece_times.size()) {
    fail("--stages", fmt::to_string(p.wanted),
         fmt::format("at most {}, the pieces of {}", s.piece_times.size(), p.name));
  }
  if (p.wanted > 0) return batching::slice_to(s.piece_times, p.wanted, p.largest_batch);
  s.trial = sim::try_stage_counts(s.piece_times, {.batch_max = p.largest_batch,
                                                  .hand_over = s.row.hand_over,
                                                  .rows = s.row.beside_hand_over(),
                                                  .load = p.stage_load,
                                                  .seed = p.seed});
  return s.trial.ends();
}

duration time_at(const std::vector<batching::batch_time>& of, std::uint32_t batch) {
  const auto at = std::ranges::lower_bound(of, batch, {}, &batching::batch_time::batch);
  return at == of.end() ? of.back().time : at->time;
}
/// Total time of all stages for a batch of the largest size.
double total_ms(const sliced& s, std::uint32_t batch) {
  double ms = 0;
  for (const auto& stage : s.times.back()) ms += to_ms(time_at(stage, batch));
  return ms;
}

/// Input for `cohort pipeline`.
std::string pipeline_json(const sliced& s, const slice_plan& p) {
  const bool has_sizes = s.sizes.front() > 0;
  json_writer out;
  out.begin_object()
      .field("name", p.name)
      .field("batch_max", p.largest_batch)
      .field("slo_ms", p.slo_ms);
  if (has_sizes) {
    out.key("sizes").begin_object(layout::line).key("buckets").begin_array();
    for (const std::uint32_t size : s.sizes) out.value(size);
    out.end_array().end_object();
  }
  out.key("stages").begin_array();
  for (std::size_t k = 0; k < s.stages.size(); ++k) {
    out.begin_object(layout::line)
        .field("name", fmt::format("s{}", k + 1))
        .key("latency")
        .begin_array();
    for (std::size_t i = 0; i < s.sizes.size(); ++i) {
      for (const batching::batch_time& t : batching::monotone(s.times[i][k])) {
        out.begin_object().field("batch", t.batch).field("ms", to_ms(t.time));
        if (has_sizes) out.field("size", s.sizes[i]);
        out.end_object();
      }
    }
    out.end_array().end_object();
  }
  return out.end_array().end_object().take();
}

/// Settings to run the folder of stages as a pipeline: each stage is an operator.
std::string stages_json(const sliced& s, const slice_plan& p) {
  json_writer out;
  out.begin_object().key(p.name).begin_object(layout::line).key("stages").begin_array();
  for (std::size_t k = 0; k < s.stages.size(); ++k) out.value(1);
  out.end_array();
  if (s.sizes.front() > 0) {
    out.key("sizes").begin_array();
    for (const std::uint32_t size : s.sizes) out.value(size);
    out.end_array();
  }
  return out.end_object().end_object().take();
}

void write_files(const slice_options& o, const slice_plan& p, bool has_model,
                 const std::string& model, const std::vector<onnx_model>& stages, const sliced& s) {
  const fs::path fresh = p.version / ".stages.new";
  const fs::path folder = p.version / "stages";
  std::error_code error;
  fs::remove_all(fresh, error);
  fs::create_directories(fresh, error);
  if (error) throw input_error{fmt::format("{}: {}", fresh.string(), error.message())};
  for (std::size_t k = 0; k < stages.size(); ++k) {
    write_file((fresh / fmt::format("{}.onnx", k + 1)).string(), to_bytes(stages[k]));
  }
  const std::string whole = (p.version / "model.onnx").string();
  if (!has_model) write_file(whole, model);
  write_file((fresh / models::cut_from_file).string(),
             models::cut_from(models::fingerprint_of_file(whole), stages.size()));
  fs::remove_all(folder, error);
  if (!error) fs::rename(fresh, folder, error);
  if (error) throw input_error{fmt::format("{}: {}", folder.string(), error.message())};
  write_file((fs::path{o.out} / (p.name + ".json")).string(), pipeline_json(s, p));
  write_file((fs::path{o.out} / (p.name + ".stages.json")).string(), stages_json(s, p));
}

void add_rows(json_writer& out, const std::vector<stage_row>& rows, const operator_times& times) {
  out.begin_array();
  for (std::size_t k = 0; k < rows.size(); ++k) {
    out.begin_object(layout::line).field("nodes", rows[k].nodes).field("pieces", rows[k].pieces);
    out.key("tensors").begin_array();
    for (const std::string& name : rows[k].tensors) out.value(name);
    out.end_array().field("bytes", rows[k].bytes).key("latency_ms").begin_object();
    for (const batching::batch_time& t : times[k]) {
      out.field(fmt::to_string(t.batch), to_ms(t.time));
    }
    out.end_object().end_object();
  }
  out.end_array();
}

std::string slice_json(const onnx_pieces& model, const sliced& s, const slice_plan& p) {
  json_writer out;
  out.begin_object()
      .field("name", p.name)
      .field("nodes", model.model().nodes.size())
      .field("places", model.places())
      .field("is_equal", s.difference == 0)
      .field("difference", s.difference)
      .field("slo_ms", p.slo_ms)
      .key("pieces");
  add_rows(out, s.pieces, s.piece_times);
  out.key("stages");
  add_rows(out, s.stages, s.times.back());
  out.key("whole_ms").begin_object(layout::line);
  for (const batching::batch_time& t : s.whole_times.back().front()) {
    out.field(fmt::to_string(t.batch), to_ms(t.time));
  }
  out.end_object();
  if (!s.trial.tried.empty()) {
    out.field("hand_over_ms", to_ms(s.row.hand_over)).field("rate_rps", s.trial.rate_rps);
    out.key("tried").begin_array();
    for (const sim::tried_stages& t : s.trial.tried) {
      out.begin_object(layout::line)
          .field("stages", t.ends.size())
          .field("mean_ms", t.mean_ms)
          .end_object();
    }
    out.end_array();
  }
  return out.end_object().take();
}

std::string slice_text(const onnx_pieces& model, const sliced& s, const slice_plan& p,
                       const std::string& folder) {
  std::string out =
      fmt::format("{}: {} nodes, {} that at most {} cross, {} measured\n\n", p.name,
                  model.model().nodes.size(), counted(model.places(), "place"),
                  counted(p.pieces.most_tensors, "tensor"), counted(s.pieces.size(), "piece"));
  const std::uint32_t b = p.largest_batch;
  if (!s.trial.tried.empty()) {
    out += fmt::format(
        "stage counts in virtual time at {} of the peak, {:.1f} requests/s, {:.4f} ms a hand-over"
        "\n\n",
        p.stage_load, s.trial.rate_rps, to_ms(s.row.hand_over));
    table t{{"stages", "mean ms", ""}};
    for (std::size_t i = 0; i < s.trial.tried.size(); ++i) {
      t.add({fmt::to_string(i + 1), fixed(s.trial.tried[i].mean_ms, 3),
             i == s.trial.best ? "chosen" : ""});
    }
    out += t.text() + '\n';
  }
  table t{{"stage", "pieces", "nodes", "ms at 1", fmt::format("ms at {}", b), "bytes a row",
           "tensors that leave it"}};
  for (std::size_t k = 0; k < s.stages.size(); ++k) {
    const stage_row& r = s.stages[k];
    t.add({fmt::format("s{}", k + 1), fmt::to_string(r.pieces), fmt::to_string(r.nodes),
           fixed(to_ms(time_at(s.times.back()[k], 1)), 3),
           fixed(to_ms(time_at(s.times.back()[k], b)), 3), r.bytes == 0 ? "" : grouped(r.bytes),
           fmt::format("{}", fmt::join(r.tensors, ", "))});
  }
  const auto& whole = s.whole_times.back().front();
  t.add({"whole", fmt::to_string(s.pieces.size()), fmt::to_string(model.model().nodes.size()),
         fixed(to_ms(time_at(whole, 1)), 3), fixed(to_ms(time_at(whole, b)), 3), "", ""});
  out += t.text() + '\n';
  out += s.difference == 0 ? std::string{"answers are those of the whole model bit by bit\n"}
                           : fmt::format(
                                 "answers differ from the whole model's by at most {:.2g} of the "
                                 "largest: the runtime "
                                 "computes other nodes in one, and rounds otherwise\n",
                                 s.difference);
  return out + fmt::format(
                   "stages of {0}/model.onnx: {0}/stages/1.onnx{1}; profile: {2}/{3}.json and "
                   "{2}/{3}.stages.json\n",
                   p.version.string(),
                   s.stages.size() == 1 ? "" : fmt::format(" to {}.onnx", s.stages.size()), folder,
                   p.name);
}

/// Measures the stages of a model at each size, with progress.
template <class Bar>
std::vector<operator_times> measure_sizes(models::onnx_factory& f, runtime::host_executor& e,
                                          const std::vector<std::uint32_t>& sizes,
                                          const slice_plan& p, Bar on_size) {
  std::vector<operator_times> out;
  for (const std::uint32_t size : sizes) {
    on_size();
    out.push_back(models::measure_operators(f, e, p.largest_batch, size, p.repeats));
  }
  return out;
}

/// @param read The model as read: its only stage if it stays whole.
sliced slice_model(const onnx_pieces& model, onnx_model read, slice_plan& p,
                   std::vector<onnx_model>& stages) {
  constexpr std::size_t pool_bytes = std::size_t{1} << 30U;
  runtime::host_executor executor{{.pool_bytes = pool_bytes}};
  sliced s;
  s.sizes = sizes_of(model.whole()->interface());
  progress_bar bar{p.name, "steps"};
  const double steps = 2.0 * static_cast<double>(s.sizes.size()) + 1;
  double done = 0;
  const auto step = [&] {
    bar.update(done / steps, done);
    done += 1;
  };
  std::vector<onnx_model> pieces = formats::cut(model.model(), model.cuts());
  s.pieces = rows_of(model, model.cuts(), pieces);
  {
    const onnx_pieces::sessions loaded = model.load_stages(pieces);
    pieces.clear();
    (void)compare(model, loaded, {s.sizes.back()}, p);  // A failure has its message.
    models::onnx_factory f{executor, loaded};
    s.row = p.hand_over_ms ? models::row_cost{.rows = {}, .hand_over = from_ms(*p.hand_over_ms)}
                           : models::measure_rows(f, executor, p.largest_batch, 101);
    s.piece_times = measure_sizes(f, executor, {s.sizes.back()}, p, step).front();
  }
  const batching::slicing ends = choose(s, p);
  std::vector<onnx_cut> cuts;
  for (std::size_t k = 0; k + 1 < ends.size(); ++k) cuts.push_back(model.cuts()[ends[k] - 1]);
  if (cuts.empty()) {
    stages.push_back(std::move(read));
  } else {
    stages = formats::cut(model.model(), cuts);
  }
  s.stages = rows_of(model, cuts, stages);
  for (std::size_t k = 0; k < ends.size(); ++k) {
    s.stages[k].pieces = ends[k] - (k == 0 ? 0 : ends[k - 1]);
  }
  const onnx_pieces::sessions loaded = model.load_stages(stages);
  s.difference = compare(model, loaded, s.sizes, p);
  models::onnx_factory f{executor, loaded};
  s.times = measure_sizes(f, executor, s.sizes, p, step);
  models::onnx_factory whole{executor, model.whole()};
  s.whole_times = measure_sizes(whole, executor, s.sizes, p, step);
  const double alone = total_ms(s, 1);
  if (p.slo_ms == 0) {
    p.slo_ms = std::ceil(std::max(20.0, 2 * total_ms(s, std::min(4U, p.largest_batch))));
  } else if (p.slo_ms < alone) {
    fail("--slo-ms", fmt::format("{}", p.slo_ms),
         fmt::format("at least {:.3f}, the latency of {} at batch 1", alone, p.name));
  }
  return s;
}

}  // namespace

int slice_command(const slice_options& o) {
  slice_plan p = parse_slice(o);
  const std::string bytes = read_onnx_file(o.file);
  onnx_model graph = parse_onnx(o.file, bytes);
  const auto library = runtime::onnx::library::open();
  std::vector<onnx_model> stages;
  try {
    const onnx_pieces model{std::move(graph), library, p.pieces};
    if (model.cuts().empty()) {
      throw input_error{fmt::format(
          "{}: cannot be cut: {} that at most {} cross, none of them with a row for each request",
          o.file, counted(model.places(), "place"), counted(p.pieces.most_tensors, "tensor"))};
    }
    const bool has_model = prepare_folder(o, p, bytes);
    const sliced s = slice_model(model, parse_onnx(o.file, bytes), p, stages);
    write_files(o, p, has_model, bytes, stages, s);
    print(o.json ? slice_json(model, s, p) : slice_text(model, s, p, o.out));
  } catch (const input_error&) {
    throw;  // It names the file.
  } catch (const device_error& e) {
    throw input_error{
        fmt::format("{}: requests of up to {} rows and size {} (--max-length says another): {}",
                    o.file, p.largest_batch, p.pieces.max_size, e.what())};
  } catch (const error& e) {
    throw input_error{fmt::format("{}: {}", o.file, e.what())};
  }
  return 0;
}

}  // namespace cohort::commands
