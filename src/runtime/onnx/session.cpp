// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/error.hpp>
#include <cohort/runtime/onnx/session.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "api.hpp"
#include "external_data.hpp"
#include "shapes.hpp"
#include "status.hpp"

namespace cohort::runtime::onnx {
namespace {

using namespace detail;

template <class T>
using owned = std::unique_ptr<T, void (*)(T*)>;

struct element_row {
  int element;  // ONNX's number.
  data_type type;
};
constexpr std::array<element_row, data_types + 1> elements{{{1, data_type::f32},
                                                            {10, data_type::f16},
                                                            {16, data_type::bf16},
                                                            {11, data_type::f64},
                                                            {3, data_type::i8},
                                                            {5, data_type::i16},
                                                            {6, data_type::i32},
                                                            {7, data_type::i64},
                                                            {2, data_type::u8},
                                                            {4, data_type::u16},
                                                            {12, data_type::u32},
                                                            {13, data_type::u64},
                                                            {9, data_type::boolean},
                                                            {8, data_type::bytes}}};

int element_of(data_type t) {
  for (const element_row& e : elements) {
    if (e.type == t) return e.element;
  }
  return 0;
}

std::string name_of_element(int element) {
  constexpr int first = 14;
  constexpr std::array<std::string_view, 10> others{
      "complex64",  "complex128",     "",      "float8e4m3fn", "float8e4m3fnuz",
      "float8e5m2", "float8e5m2fnuz", "uint4", "int4",         "float4e2m1"};
  const auto at = static_cast<std::size_t>(element - first);
  if (element < first || at >= others.size() || others[at].empty()) {
    return fmt::format("type {} of ONNX", element);
  }
  return std::string{others[at]};
}

std::string_view name_of_kind(int kind) {
  constexpr std::array<std::string_view, 7> names{
      "of no known kind", "a tensor",        "a sequence", "a map",
      "opaque",           "a sparse tensor", "optional"};
  const auto at = static_cast<std::size_t>(kind);
  return at < names.size() ? names[at] : names[0];
}

/// Elements of a shape. @returns `most` + 1 if there are more than `most`.
std::size_t count_of(std::span<const std::int64_t> shape, std::size_t most) {
  std::size_t n = 1;
  if (std::ranges::find(shape, 0) != shape.end()) return 0;
  for (const std::int64_t d : shape) {
    if (d < 0 || static_cast<std::size_t>(d) > most / n) return most + 1;
    n *= static_cast<std::size_t>(d);
  }
  return n;
}

/// The source of a session: bytes or a file.
struct model_origin {
  std::span<const std::byte> bytes{};
  model_place* place = nullptr;  ///< Place of the file, or null.
  std::filesystem::path name{};  ///< The file's.
};

std::string replaced(std::string text, const std::string& old, const std::string& with) {
  for (std::size_t at = 0; (at = text.find(old, at)) != std::string::npos; at += with.size()) {
    text.replace(at, old.size(), with);
  }
  return text;
}

/// Whether ONNX Runtime plans memory, separately for each shape of inputs.
enum class memory_plans : std::uint8_t { no, yes };

/// A session's functions and the objects released with it.
class loaded {
 public:
  loaded(std::shared_ptr<const library> runtime)  // NOLINT(google-explicit-constructor)
      : runtime_{std::move(runtime)}, api_{&runtime_->api()} {}

  [[nodiscard]] const ort_api& api() const noexcept { return *api_; }
  [[nodiscard]] const std::shared_ptr<const library>& runtime() const noexcept { return runtime_; }
  /// @throws config_error If a call about the model failed.
  void check(ort_status* status) const {
    if (const auto why = failure_of(*api_, status)) throw config_error{*why};
  }

  void load(const model_origin& model, const session_options& o,
            memory_plans plans = memory_plans::yes) {
    session_.reset();
    ort_session_options* made = nullptr;
    check(api_->create_session_options(&made));
    const owned<ort_session_options> options{made, api_->release_session_options};
    check(api_->set_log_severity(made, fatal_log));
    check(api_->set_intra_op_threads(made, static_cast<int>(o.threads)));
    check(api_->set_inter_op_threads(made, 1));
    if (plans == memory_plans::no) check(api_->disable_memory_plans(made));
    check(api_->set_execution_mode(made, in_sequence));
    // Spinning would take cores from other devices.
    check(api_->add_session_entry(made, "session.intra_op.allow_spinning", "0"));
    if (o.cuda_device) runtime_->append_cuda(*made, *o.cuda_device);

    session_.reset(model.place == nullptr ? session_of(model.bytes, made)
                                          : session_of(model, made));
    ort_memory_info* memory = nullptr;
    check(api_->create_cpu_memory_info(device_allocator, default_memory, &memory));
    memory_.reset(memory);
  }

  [[nodiscard]] std::vector<declared_tensor> inputs() const {
    return tensors("input", api_->input_count, api_->input_name, api_->input_type);
  }
  /// @param names Outputs to describe, in the model's order; empty: all.
  [[nodiscard]] std::vector<declared_tensor> outputs(const std::vector<std::string>& names) const {
    return tensors("output", api_->output_count, api_->output_name, api_->output_type, nullptr,
                   names);
  }
  /// @param is_plain Whether each is a tensor of plain numbers: only those are described.
  [[nodiscard]] std::vector<declared_tensor> outputs(std::vector<bool>& is_plain) const {
    return tensors("output", api_->output_count, api_->output_name, api_->output_type, &is_plain);
  }

  /// @returns The error, if it failed.
  [[nodiscard]] std::optional<std::string> run(const char* const* input_names,
                                               std::span<ort_value* const> inputs,
                                               const char* const* output_names,
                                               std::span<ort_value*> outputs,
                                               const ort_run_options* how = nullptr) const {
    return failure_of(*api_,
                      api_->run(session_.get(), how, input_names, inputs.data(), inputs.size(),
                                output_names, outputs.size(), outputs.data()));
  }
  /// Uses the caller's memory for numbers, a copy for strings. @returns The error, if it failed.
  [[nodiscard]] std::optional<std::string> make_tensor(data_type type,
                                                       std::span<const std::int64_t> shape,
                                                       std::span<std::byte> data,
                                                       ort_value** to) const {
    if (type == data_type::bytes) return make_strings(shape, data, to);
    return failure_of(
        *api_, api_->create_tensor_with_data(memory_.get(), data.data(), data.size(), shape.data(),
                                             shape.size(), element_of(type), to));
  }
  /// A tensor of strings in the format of `take_string`.
  /// @throws config_error If a call about it failed. @throws std::bad_alloc
  [[nodiscard]] std::pair<std::shared_ptr<const std::byte[]>, std::size_t> strings_of(
      const ort_value* value, std::span<const std::int64_t> shape) const {
    std::size_t length = 0;
    check(api_->length_of_strings(value, &length));
    const std::size_t n = count_of(shape, std::numeric_limits<std::uint32_t>::max());
    const std::size_t bytes = n * string_length_bytes + length;
    const std::shared_ptr<std::byte[]> all{new std::byte[bytes]};
    // They arrive without gaps and move forward to their places, in order, so that none is
    // overwritten.
    std::byte* const text = all.get() + n * string_length_bytes;
    std::vector<std::size_t> starts(n);
    if (n > 0) check(api_->read_strings(value, text, length, starts.data(), n));
    starts.push_back(length);
    std::byte* to = all.get();
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t size = starts[i + 1] - starts[i];
      if (size > std::numeric_limits<std::uint32_t>::max()) {
        throw config_error{
            fmt::format("string {} has {} bytes: expected less than 4 GiB", i, size)};
      }
      to = put_string_length(to, static_cast<std::uint32_t>(size));
      std::memmove(to, text + starts[i], size);
      to += size;
    }
    return {all, bytes};
  }
  /// @returns [0] for a missing one: ONNX Runtime may omit such an output.
  [[nodiscard]] std::vector<std::int64_t> shape_of_any(const ort_value* value) const {
    ort_tensor_info* info = nullptr;
    if (failure_of(*api_, api_->tensor_info_of(value, &info))) return {0};
    const owned<ort_tensor_info> release{info, api_->release_tensor_info};
    return dimensions_of(info);
  }
  [[nodiscard]] std::vector<std::int64_t> shape_of(const ort_value* value) const {
    ort_tensor_info* info = nullptr;
    check(api_->tensor_info_of(value, &info));
    const owned<ort_tensor_info> release{info, api_->release_tensor_info};
    return dimensions_of(info);
  }

 private:
  [[nodiscard]] ort_session* session_of(std::span<const std::byte> bytes,
                                        const ort_session_options* how) const {
    if (!external_locations(bytes).empty()) {
      throw config_error{"external data are refused: expected all weights in the model itself"};
    }
    ort_session* made = nullptr;
    check(
        api_->create_session_from_bytes(&runtime_->env(), bytes.data(), bytes.size(), how, &made));
    return made;
  }
  /// Loads a session. For a file ONNX Runtime keeps one copy of the weights; for bytes it makes two
  /// more.
  [[nodiscard]] ort_session* session_of(const model_origin& model,
                                        const ort_session_options* how) const {
    runtime::detail::regular_file& file = model.place->file;
    const auto made_of = [&](const std::string& path) {
      ort_session* made = nullptr;
      if (auto why =
              failure_of(*api_, api_->create_session(&runtime_->env(), path.c_str(), how, &made))) {
        const std::string folder = std::filesystem::path{path}.parent_path().string() + '/';
        throw config_error{
            replaced(replaced(std::move(*why), path, model.name.string()), folder, "")};
      }
      return made;
    };
    const std::vector<std::string> others = external_locations(file);
    if (others.empty()) {
      owned<ort_session> made{made_of(file.file().link()), api_->release_session};
      // A process that maps the file could change it without changing its times.
      if (file.has_changed() || !external_locations(file).empty()) {
        throw config_error{"changed while it was read: load the model again"};
      }
      return made.release();
    }
    // ONNX Runtime maps external data: truncating a file later would end the process.
    const private_copy copy{*model.place, model.name, others};
    return made_of(copy.model().string());
  }

  [[nodiscard]] std::optional<std::string> make_strings(std::span<const std::int64_t> shape,
                                                        std::span<const std::byte> from,
                                                        ort_value** to) const {
    const std::size_t n = count_of(shape, from.size() / string_length_bytes);
    const auto wrong = [&] {
      return fmt::format("its strings do not fit their shape, [{}]", fmt::join(shape, ","));
    };
    if (n > from.size() / string_length_bytes) return wrong();
    ort_allocator* allocator = nullptr;
    if (auto why = failure_of(*api_, api_->default_allocator(&allocator))) return why;
    if (auto why = failure_of(*api_, api_->create_tensor(allocator, shape.data(), shape.size(),
                                                         element_of(data_type::bytes), to))) {
      return why;
    }
    for (std::size_t i = 0; i < n; ++i) {
      const auto text = take_string(from);
      if (!text) return wrong();
      char* room = nullptr;
      if (auto why = failure_of(*api_, api_->string_room(*to, i, text->size(), &room))) return why;
      std::memcpy(room, text->data(), text->size());
    }
    if (!from.empty()) return wrong();
    return std::nullopt;
  }

  [[nodiscard]] std::vector<std::int64_t> dimensions_of(const ort_tensor_info* info) const {
    std::size_t rank = 0;
    check(api_->rank_of(info, &rank));
    std::vector<std::int64_t> values(rank);
    check(api_->dimensions_of(info, values.data(), rank));
    return values;
  }

  template <class Count, class Name, class Type>
  [[nodiscard]] std::vector<declared_tensor> tensors(
      std::string_view side, Count count, Name name, Type type,
      std::vector<bool>* is_plain = nullptr, const std::vector<std::string>& names = {}) const {
    std::size_t n = 0;
    check(count(session_.get(), &n));
    ort_allocator* allocator = nullptr;
    check(api_->default_allocator(&allocator));
    std::vector<declared_tensor> found;
    for (std::size_t i = 0; i < n; ++i) {
      char* text = nullptr;
      check(name(session_.get(), i, allocator, &text));
      declared_tensor& t = found.emplace_back(declared_tensor{.name = text});
      check(api_->allocator_free(allocator, text));
      if (!names.empty() && std::ranges::find(names, t.name) == names.end()) {
        found.pop_back();
        continue;
      }
      ort_type_info* info = nullptr;
      check(type(session_.get(), i, &info));
      const owned<ort_type_info> release{info, api_->release_type_info};
      try {
        fill(side, t, info);
        if (is_plain != nullptr) is_plain->push_back(has_fixed_size(t.type));
      } catch (const config_error&) {
        if (is_plain == nullptr) throw;
        is_plain->push_back(false);
      }
    }
    return found;
  }

  void fill(std::string_view side, declared_tensor& t, const ort_type_info* info) const {
    int kind = 0;
    check(api_->kind_of(info, &kind));
    if (kind != kind_tensor) {
      throw config_error{fmt::format("{} '{}' is {}: expected a tensor of numbers", side, t.name,
                                     name_of_kind(kind))};
    }
    const ort_tensor_info* tensor = nullptr;
    check(api_->as_tensor_info(info, &tensor));
    int element = 0;
    check(api_->element_of(tensor, &element));
    const auto* const row = std::ranges::find(elements, element, &element_row::element);
    if (row == elements.end()) {
      throw config_error{
          fmt::format("{} '{}' is of {}: expected numbers of 8 to 64 bits or booleans", side,
                      t.name, name_of_element(element))};
    }
    t.type = row->type;
    if (t.type == data_type::bytes && !runtime_->has_strings()) {
      throw config_error{
          fmt::format("{} '{}' is of BYTES (strings), but ONNX Runtime is {}: expected 1.{} or "
                      "later for strings",
                      side, t.name, runtime_->version(), strings_api_version)};
    }
    const std::vector<std::int64_t> values = dimensions_of(tensor);
    std::vector<const char*> names(values.size());
    check(api_->dimension_names_of(tensor, names.data(), names.size()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      t.shape.push_back({.value = values[i], .name = names[i] == nullptr ? "" : names[i]});
    }
  }

  std::shared_ptr<const library> runtime_;
  const ort_api* api_;
  owned<ort_session> session_{nullptr, api_->release_session};
  owned<ort_memory_info> memory_{nullptr, api_->release_memory_info};
};

/// Values of one run, released with it.
class values {
 public:
  values(const ort_api& api, std::size_t count) : api_{&api}, all_(count) {}
  ~values() {
    for (ort_value* v : all_) {
      if (v != nullptr) api_->release_value(v);
    }
  }
  values(const values&) = delete;
  values& operator=(const values&) = delete;
  [[nodiscard]] std::span<ort_value*> all() noexcept { return all_; }

 private:
  const ort_api* api_;
  std::vector<ort_value*> all_;
};

std::vector<std::int64_t> shape_of(const tensor_info& t, bool has_batch, std::uint32_t rows,
                                   std::uint32_t size) {
  std::vector<std::int64_t> shape;
  if (has_batch) shape.push_back(rows);
  for (const std::int64_t d : t.shape) shape.push_back(d == size_dimension ? size : d);
  return shape;
}

/// Runs a model on zeros. @returns The shapes of its outputs, by name. @param why Receives the
/// error.
/// @param shape Returns the shape of a value.
template <class Shape>
std::vector<std::vector<std::int64_t>> shapes_on_zeros(
    const loaded& model, std::span<const tensor_info> of, std::span<const char* const> outputs,
    bool has_batch, std::uint32_t rows, std::uint32_t size, std::string& why, Shape shape,
    const ort_run_options* how = nullptr) {
  std::vector<std::vector<std::byte>> zeros;
  std::vector<const char*> inputs;
  values in{model.api(), of.size()};
  values out{model.api(), outputs.size()};
  for (std::size_t i = 0; i < of.size(); ++i) {
    inputs.push_back(of[i].name.c_str());
    std::vector<std::byte>& data = zeros.emplace_back(of[i].bytes(size) * rows);
    if (const auto failed = model.make_tensor(of[i].type, shape_of(of[i], has_batch, rows, size),
                                              data, &in.all()[i])) {
      throw config_error{*failed};
    }
  }
  if (const auto failed = model.run(inputs.data(), in.all(), outputs.data(), out.all(), how)) {
    why = *failed;
    return {};
  }
  std::vector<std::vector<std::int64_t>> found;
  for (const ort_value* v : out.all()) found.push_back((model.*shape)(v));
  return found;
}

/// Describes a tensor seen with 2 rows of one size and 3 of another, or without rows.
std::optional<tensor_info> row_of(const declared_tensor& t, std::span<const std::int64_t> small,
                                  std::span<const std::int64_t> large, bool has_batch,
                                  std::uint32_t small_size, std::uint32_t large_size) {
  if (small.size() != large.size()) return std::nullopt;
  if (has_batch && (small.empty() || small[0] != 2 || large[0] != 3)) return std::nullopt;
  tensor_info row{.name = t.name, .type = t.type, .shape = {}};
  for (std::size_t i = has_batch ? 1 : 0; i < small.size(); ++i) {
    if (small[i] == large[i] && small[i] >= 1) {
      row.shape.push_back(small[i]);
    } else if (small[i] == small_size && large[i] == large_size) {
      row.shape.push_back(size_dimension);
    } else {
      return std::nullopt;
    }
  }
  return row;
}

void check_options(const session_options& o) {
  if (o.threads < 1 || o.threads > 1024) {
    throw config_error{fmt::format("threads is {}: expected 1 to 1024", o.threads)};
  }
  if (o.max_size < 1 || o.max_size > 1U << 20U) {
    throw config_error{fmt::format("max_size is {}: expected 1 to {}", o.max_size, 1U << 20U)};
  }
  const auto& rows = o.batch_sizes;
  if (std::ranges::adjacent_find(rows, std::greater_equal{}) != rows.end() ||
      (!rows.empty() && rows.front() < 1)) {
    throw config_error{fmt::format("batch_sizes is {}: expected ascending numbers from 1 on",
                                   fmt::join(rows, ", "))};
  }
}

/// @throws config_error If one of them is missing.
void require_all(const std::vector<declared_tensor>& outputs,
                 const std::vector<std::string>& names) {
  for (const std::string& n : names) {
    if (std::ranges::find(outputs, n, &declared_tensor::name) == outputs.end()) {
      throw config_error{fmt::format("it has no output '{}'", n)};
    }
  }
}

}  // namespace

class run_end::state {
 public:
  explicit state(std::shared_ptr<const library> runtime)
      : runtime_{std::move(runtime)}, api_{&runtime_->api()} {
    ort_run_options* made = nullptr;
    if (const auto why = failure_of(*api_, api_->create_run_options(&made)))
      throw resource_error{*why};
    options_.reset(made);
  }

  /// @throws device_error If the run was abandoned.
  void begin(const std::atomic<bool>* given_up) {
    const std::lock_guard lock{mutex_};
    if (given_up != nullptr && given_up->load()) throw device_error{"the run was given up"};
    static_cast<void>(failure_of(*api_, api_->unset_terminate(options_.get())));
    given_up_ = given_up;
  }
  void end() noexcept {
    const std::lock_guard lock{mutex_};
    given_up_ = nullptr;
  }
  void ask() noexcept {
    const std::lock_guard lock{mutex_};
    if (given_up_ == nullptr || !given_up_->load()) return;
    if (ort_status* const failed = api_->set_terminate(options_.get()))
      api_->release_status(failed);
  }
  [[nodiscard]] const ort_run_options* options() const noexcept { return options_.get(); }

  /// One run, from construction to destruction.
  class run {
   public:
    run(run_end::state& of, const std::atomic<bool>* given_up) : of_{of} { of_.begin(given_up); }
    ~run() { of_.end(); }
    run(const run&) = delete;
    run& operator=(const run&) = delete;

   private:
    run_end::state& of_;
  };

 private:
  std::shared_ptr<const library> runtime_;
  const ort_api* api_;
  owned<ort_run_options> options_{nullptr, api_->release_run_options};
  std::mutex mutex_;
  const std::atomic<bool>* given_up_ = nullptr;  // Flag of the present run.
};

class session::state {
 public:
  state(std::shared_ptr<const library> runtime, const model_origin& model,
        const session_options& options)
      : loaded_{std::move(runtime)} {
    // With open shapes ONNX Runtime would keep a memory plan for each shape it ever sees.
    const bool is_open = !options.why_open.empty();
    loaded_.load(model, options, is_open ? memory_plans::no : memory_plans::yes);
    std::vector<declared_tensor> inputs = loaded_.inputs();
    for (const stated_shape& s : options.shapes) state_shape(inputs, s);
    const std::vector<declared_tensor> outputs = loaded_.outputs(options.outputs);
    require_all(outputs, options.outputs);
    for (const declared_tensor& t : inputs) names_.push_back(t.name);
    for (const declared_tensor& t : outputs) names_.push_back(t.name);
    for (const std::string& n : names_) name_pointers_.push_back(n.c_str());
    find_passed(inputs.size());
    described_ =
        describe(inputs, outputs, options,
                 [&](std::span<const tensor_info> of, bool has_batch, std::uint32_t rows,
                     std::uint32_t size) { return probe(of, has_batch, rows, size, options); });
    if (!described_.why_open.empty()) {
      if (!is_open) loaded_.load(model, options, memory_plans::no);
      declared_ = inputs;
      find_sample(inputs, options);
    }
    if (described_.has_batch) batch_sizes_ = options.batch_sizes;
    while (copies_.size() + 1 < batch_sizes_.size()) {
      copies_.emplace_back(loaded_.runtime()).load(model, options);
    }
  }

  [[nodiscard]] const described_model& described() const noexcept { return described_; }
  [[nodiscard]] const std::vector<std::vector<std::int64_t>>& sample() const noexcept {
    return sample_;
  }
  [[nodiscard]] const std::shared_ptr<const library>& runtime() const noexcept {
    return loaded_.runtime();
  }

  /// @returns The maximum number of rows that run at once.
  [[nodiscard]] std::uint32_t most_rows() const noexcept {
    if (!described_.has_batch) return 1;
    return batch_sizes_.empty() ? std::numeric_limits<std::uint32_t>::max() : batch_sizes_.back();
  }

  /// @param rows At most `most_rows()`.
  void run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
           std::uint32_t rows, std::uint32_t size, std::size_t first,
           const ort_run_options* how) const {
    const auto at = std::ranges::lower_bound(batch_sizes_, rows);
    if (at == batch_sizes_.end() || *at == rows) {
      run_on(copy_for(at), inputs, outputs, rows, size, first, how);
      return;
    }
    const model_interface& m = described_.interface;
    std::vector<std::vector<std::byte>> filled;
    std::vector<const std::byte*> in;
    std::vector<std::byte*> out;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::size_t bytes = m.inputs[i].bytes(size);
      std::byte* to = filled.emplace_back(bytes * *at).data();
      in.push_back(to);
      std::memcpy(to, inputs[i] + first * bytes, bytes * rows);
      for (std::size_t k = rows; k < *at; ++k) {
        std::memcpy(to + k * bytes, to + (rows - 1) * bytes, bytes);
      }
    }
    for (const tensor_info& t : m.outputs) {
      out.push_back(filled.emplace_back(t.bytes(size) * *at).data());
    }
    run_on(copy_for(at), in, out, *at, size, 0, how);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const std::size_t bytes = m.outputs[i].bytes(size);
      std::memcpy(outputs[i] + first * bytes, out[i], bytes * rows);
    }
  }

  [[nodiscard]] std::vector<shaped_tensor> run_shaped(std::span<const shaped_tensor> inputs,
                                                      const ort_run_options* how) const {
    const model_interface& m = described_.interface;
    check_shapes(inputs);
    values in{loaded_.api(), inputs.size()};
    values out{loaded_.api(), m.outputs.size()};
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      // It only reads, though it takes a pointer to writable memory.
      auto* const data = const_cast<std::byte*>(  // NOLINT(cppcoreguidelines-pro-type-const-cast)
          inputs[i].bytes.data());
      if (const auto failed = loaded_.make_tensor(m.inputs[i].type, inputs[i].shape,
                                                  {data, inputs[i].bytes.size()}, &in.all()[i])) {
        check(fmt::format("input '{}': {}", m.inputs[i].name, *failed));
      }
    }
    check(loaded_.run(name_pointers_.data(), in.all(), name_pointers_.data() + inputs.size(),
                      out.all(), how));
    std::vector<shaped_tensor> all;
    for (std::size_t i = 0; i < m.outputs.size(); ++i) {
      all.push_back(taken(out.all()[i], m.outputs[i]));
      // An output that equals an input is that input, in memory that ONNX Runtime does not own.
      const std::byte* const at = all.back().bytes.data();
      const auto in_it = std::ranges::find_if(inputs, [at](const shaped_tensor& t) {
        const std::less_equal<> le;
        return !t.bytes.empty() && le(t.bytes.data(), at) && le(at, &t.bytes.back());
      });
      if (in_it != inputs.end()) all.back().owner = in_it->owner;
    }
    return all;
  }

 private:
  /// Checks lengths: ONNX Runtime only checks ranks and constants, and some operators end the
  /// process if lengths are 0 or do not match.
  void check_shapes(std::span<const shaped_tensor> inputs) const {
    std::map<std::string_view, std::int64_t> named;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const declared_tensor& t = declared_[i];
      const std::vector<std::int64_t>& shape = inputs[i].shape;
      const auto wrong = [&](std::size_t d, std::int64_t expected) {
        throw device_error{fmt::format("model '{}': input '{}', dimension {} is {}: expected {}",
                                       described_.interface.name, t.name, d, shape[d],
                                       expected == -1 ? "at least 1" : fmt::to_string(expected))};
      };
      if (shape.size() != t.shape.size()) {
        throw device_error{fmt::format("model '{}': input '{}' has {} dimensions: expected {}",
                                       described_.interface.name, t.name, shape.size(),
                                       t.shape.size())};
      }
      for (std::size_t d = 0; d < shape.size(); ++d) {
        std::int64_t expected = t.shape[d].value;
        if (expected == -1 && !t.shape[d].name.empty()) {
          expected = named.emplace(t.shape[d].name, shape[d]).first->second;
        }
        if (shape[d] < 1) wrong(d, -1);
        if (expected != -1 && shape[d] != expected) wrong(d, expected);
      }
    }
  }

  /// Takes over an output with its memory. @param value Set to null.
  [[nodiscard]] shaped_tensor taken(ort_value*& value, const tensor_info& t) const {
    if (value == nullptr) {
      throw device_error{fmt::format("model '{}': it did not compute output '{}'",
                                     described_.interface.name, t.name)};
    }
    ort_value* const mine = std::exchange(value, nullptr);
    shaped_tensor made;
    made.owner = std::shared_ptr<ort_value>{
        mine, [library = loaded_.runtime()](ort_value* v) { library->api().release_value(v); }};
    void* data = nullptr;
    const auto fail = [&](std::string_view why) {
      throw device_error{
          fmt::format("model '{}': output '{}': {}", described_.interface.name, t.name, why)};
    };
    try {
      made.shape = loaded_.shape_of(mine);
      if (t.type == data_type::bytes) {
        const auto [strings, bytes] = loaded_.strings_of(mine, made.shape);
        made.bytes = {strings.get(), bytes};
        made.owner = strings;
        return made;
      }
      loaded_.check(loaded_.api().tensor_data(mine, &data));
    } catch (const config_error& e) {
      fail(e.what());
    } catch (const std::bad_alloc&) {
      fail("there is no memory for its strings");
    }
    made.bytes = {static_cast<const std::byte*>(data), bytes_of(t.type) * elements_of(made.shape)};
    return made;
  }

  static void state_shape(std::vector<declared_tensor>& inputs, const stated_shape& s) {
    const auto t = std::ranges::find(inputs, s.input, &declared_tensor::name);
    if (t == inputs.end() || t->shape.size() != s.shape.size()) return;
    for (std::size_t i = 0; i < s.shape.size(); ++i) {
      if (t->shape[i].value == -1 && s.shape[i] >= 1) t->shape[i] = {.value = s.shape[i]};
    }
  }

  /// Tries to find shapes that it accepts: models may require images of a certain size, a multiple
  /// of 32, ...
  void find_sample(const std::vector<declared_tensor>& inputs, const session_options& o) {
    constexpr std::size_t most = std::size_t{4} << 20U;  // Elements of an input.
    for (const std::int64_t length : {64, 512, 16, 224, 1}) {
      auto shapes = detail::sample_shapes(inputs, length);
      std::vector<tensor_info> of;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        of.push_back({.name = inputs[i].name, .type = inputs[i].type, .shape = shapes[i]});
      }
      const bool is_small = std::ranges::all_of(shapes, [](const std::vector<std::int64_t>& s) {
        std::size_t n = 1;
        return std::ranges::all_of(s, [&](std::int64_t d) {
          return n <= most && (n *= static_cast<std::size_t>(d)) <= most;
        });
      });
      if (!is_small || !can_run(of, o)) continue;
      sample_ = std::move(shapes);
      return;
    }
  }
  [[nodiscard]] bool can_run(std::span<const tensor_info> of, const session_options& o) const {
    try {
      static_cast<void>(probe(of, false, 1, 1, o));
      return true;
    } catch (const config_error&) {
      return false;
    }
  }

  [[nodiscard]] const loaded& copy_for(std::vector<std::uint32_t>::const_iterator at) const {
    const auto i = at == batch_sizes_.end() ? 0 : at - batch_sizes_.begin();
    return i == 0 ? loaded_ : copies_[static_cast<std::size_t>(i) - 1];
  }

  void run_on(const loaded& copy, std::span<const std::byte* const> inputs,
              std::span<std::byte* const> outputs, std::uint32_t rows, std::uint32_t size,
              std::size_t first, const ort_run_options* how) const {
    const model_interface& m = described_.interface;
    for (const passed& p : passed_) {
      const std::size_t bytes = m.inputs[p.input].bytes(size);
      std::memcpy(outputs[p.output] + first * bytes, inputs[p.input] + first * bytes, bytes * rows);
    }
    if (computed_.empty()) return;
    values in{loaded_.api(), inputs.size()};
    values out{loaded_.api(), computed_.size()};
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      // It only reads, though it takes a pointer to writable memory.
      bind(m.inputs[i],
           const_cast<std::byte*>(inputs[i]),  // NOLINT(cppcoreguidelines-pro-type-const-cast)
           rows, size, first, in.all()[i]);
    }
    for (std::size_t i = 0; i < computed_.size(); ++i) {
      bind(m.outputs[computed_[i]], outputs[computed_[i]], rows, size, first, out.all()[i]);
    }
    check(copy.run(name_pointers_.data(), in.all(), computed_names_.data(), out.all(), how));
  }

  void check(const std::optional<std::string>& failure) const {
    if (failure)
      throw device_error{fmt::format("model '{}': {}", described_.interface.name, *failure)};
  }
  void bind(const tensor_info& t, std::byte* data, std::uint32_t rows, std::uint32_t size,
            std::size_t first, ort_value*& to) const {
    const std::size_t bytes = t.bytes(size);
    const std::vector<std::int64_t> shape = shape_of(t, described_.has_batch, rows, size);
    check(loaded_.make_tensor(t.type, shape, {data + first * bytes, bytes * rows}, &to));
  }

  [[nodiscard]] std::vector<std::vector<std::int64_t>> probe(std::span<const tensor_info> of,
                                                             bool has_batch, std::uint32_t rows,
                                                             std::uint32_t size,
                                                             const session_options& o) const {
    std::optional<run_end::state::run> run;
    if (o.end != nullptr) run.emplace(*o.end->state_, o.given_up);
    std::string why;
    auto found =
        shapes_on_zeros(loaded_, of, std::span{name_pointers_}.subspan(of.size()), has_batch, rows,
                        size, why, &loaded::shape_of, run ? o.end->state_->options() : nullptr);
    if (why.empty()) return found;
    throw no_rows_error{
        fmt::format("shapes of its outputs are not declared, and running it on zeros ({} rows of "
                    "size {}) failed: {}",
                    rows, size, why)};
  }

  /// An output that is an input itself. ONNX Runtime would not write it to the caller's memory.
  struct passed {
    std::size_t output;
    std::size_t input;
  };
  void find_passed(std::size_t inputs) {
    for (std::size_t i = inputs; i < names_.size(); ++i) {
      const auto end = names_.begin() + static_cast<std::ptrdiff_t>(inputs);
      const auto at = std::find(names_.begin(), end, names_[i]);
      if (at != end) {
        passed_.push_back({i - inputs, static_cast<std::size_t>(at - names_.begin())});
      } else {
        computed_.push_back(i - inputs);
        computed_names_.push_back(name_pointers_[i]);
      }
    }
  }

  loaded loaded_;                           // For the first batch size, or for all.
  std::vector<loaded> copies_;              // For the others.
  std::vector<std::uint32_t> batch_sizes_;  // Ascending.
  std::vector<std::string> names_;          // Names of inputs, then of outputs.
  std::vector<const char*> name_pointers_;
  std::vector<passed> passed_;
  std::vector<std::size_t> computed_;  // All other outputs.
  std::vector<const char*> computed_names_;
  described_model described_;
  std::vector<declared_tensor> declared_;          // Inputs of an open model,
  std::vector<std::vector<std::int64_t>> sample_;  // and accepted shapes.
};

session::session(std::shared_ptr<const library> runtime, const std::filesystem::path& file,
                 const session_options& options) {
  check_options(options);
  session_options named = options;
  if (named.name.empty()) named.name = file.stem().string();
  try {
    model_place place{options.below, file};
    place.file.limit(options.max_bytes);
    if (!place.file.problem().empty()) throw config_error{place.file.problem()};
    state_ = std::make_unique<state>(std::move(runtime),
                                     model_origin{.place = &place, .name = file.filename()}, named);
  } catch (const config_error& e) {
    throw config_error{fmt::format("{}: {}", file.string(), e.what())};
  }
}

session::session(std::shared_ptr<const library> runtime, std::span<const std::byte> model,
                 const session_options& options) {
  check_options(options);
  try {
    state_ = std::make_unique<state>(std::move(runtime), model_origin{.bytes = model}, options);
  } catch (const config_error& e) {
    throw config_error{fmt::format("model '{}': {}", options.name, e.what())};
  }
}

session::~session() = default;

std::vector<std::optional<tensor_info>> describe_outputs(std::shared_ptr<const library> runtime,
                                                         std::span<const std::byte> model,
                                                         const session_options& options) {
  check_options(options);
  try {
    loaded made{std::move(runtime)};
    made.load({.bytes = model}, options);
    const described_model inputs = describe(made.inputs(), {}, options, {});
    std::vector<bool> is_plain;
    const std::vector<declared_tensor> outputs = made.outputs(is_plain);
    std::vector<const char*> names;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (is_plain[i]) names.push_back(outputs[i].name.c_str());
    }
    const std::uint32_t large_size = std::min(inputs.interface.max_size, 12U);
    const std::uint32_t small_size = std::max(large_size / 2, 1U);
    const auto seen = [&](std::uint32_t rows, std::uint32_t size) {
      std::string why;
      auto shapes = shapes_on_zeros(made, inputs.interface.inputs, names, inputs.has_batch,
                                    inputs.has_batch ? rows : 1, size, why, &loaded::shape_of_any);
      if (why.empty()) return shapes;
      throw config_error{
          fmt::format("running it on zeros ({} rows of size {}) failed: {}", rows, size, why)};
    };
    const auto small = seen(2, small_size);
    const auto large = seen(3, large_size);
    std::vector<std::optional<tensor_info>> found(outputs.size());
    for (std::size_t i = 0, k = 0; i < outputs.size(); ++i) {
      if (!is_plain[i]) continue;
      found[i] = row_of(outputs[i], small[k], large[k], inputs.has_batch, small_size, large_size);
      ++k;
    }
    return found;
  } catch (const config_error& e) {
    throw config_error{fmt::format("model '{}': {}", options.name, e.what())};
  }
}

const model_interface& session::interface() const noexcept { return state_->described().interface; }
bool session::has_batch() const noexcept { return state_->described().has_batch; }
bool session::pads() const noexcept { return state_->described().pads; }
const std::string& session::why_open() const noexcept { return state_->described().why_open; }
const std::vector<std::vector<std::int64_t>>& session::sample_shapes() const noexcept {
  return state_->sample();
}

run_end::run_end(std::shared_ptr<const library> of)
    : state_{std::make_unique<state>(std::move(of))} {}
run_end::run_end(const session& of) : run_end{of.runtime()} {}
run_end::~run_end() = default;
void run_end::ask() noexcept { state_->ask(); }

std::shared_ptr<const library> session::runtime() const noexcept { return state_->runtime(); }

void session::run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                  std::uint32_t rows, std::uint32_t size, run_end& end,
                  const std::atomic<bool>* given_up) const {
  const run_end::state::run under_way{*end.state_, given_up};
  run_rows(inputs, outputs, rows, size, &end);
}

void session::run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                  std::uint32_t rows, std::uint32_t size) const {
  run_rows(inputs, outputs, rows, size, nullptr);
}

std::vector<shaped_tensor> session::run_shaped(std::span<const shaped_tensor> inputs, run_end& end,
                                               const std::atomic<bool>* given_up) const {
  const model_interface& m = interface();
  if (!is_open()) {
    throw config_error{fmt::format(
        "model '{}': its inputs are rows: expected a model whose shapes are open", m.name)};
  }
  if (inputs.size() != m.inputs.size()) {
    throw config_error{fmt::format("model '{}': the number of inputs is {}: expected {}", m.name,
                                   inputs.size(), m.inputs.size())};
  }
  const run_end::state::run under_way{*end.state_, given_up};
  return state_->run_shaped(inputs, end.state_->options());
}

void session::run_rows(std::span<const std::byte* const> inputs,
                       std::span<std::byte* const> outputs, std::uint32_t rows, std::uint32_t size,
                       const run_end* end) const {
  const model_interface& m = interface();
  const auto refuse = [&](std::string_view what, std::size_t is, std::string_view range,
                          std::size_t most) {
    throw config_error{
        fmt::format("model '{}': {} is {}: expected {}{}", m.name, what, is, range, most)};
  };
  if (is_open()) {
    throw config_error{fmt::format(
        "model '{}': its shapes are open: expected a model whose inputs are rows", m.name)};
  }
  if (inputs.size() != m.inputs.size())
    refuse("the number of inputs", inputs.size(), "", m.inputs.size());
  if (outputs.size() != m.outputs.size()) {
    refuse("the number of outputs", outputs.size(), "", m.outputs.size());
  }
  if (rows < 1) refuse("rows", rows, "at least ", 1);
  if (size < 1 || size > m.max_size) refuse("size", size, "1 to ", m.max_size);
  const std::uint32_t together = std::min(rows, state_->most_rows());
  for (std::uint32_t first = 0; first < rows; first += together) {
    state_->run(inputs, outputs, std::min(together, rows - first), size, first,
                end == nullptr ? nullptr : end->state_->options());
  }
}

}  // namespace cohort::runtime::onnx
