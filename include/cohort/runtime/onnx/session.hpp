// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model in ONNX Runtime: its interface, and runs on the caller's memory.
#pragma once

#include <cohort/runtime/onnx/library.hpp>
#include <cohort/runtime/shaped_tensor.hpp>
#include <cohort/runtime/tensor.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cohort::runtime::onnx {

/// Whether a request may be run among longer ones, with zeros behind its input. That is correct
/// only if the model masks them, which only its author can know.
enum class padding : std::uint8_t {
  by_name,  ///< As `zeros` if an input's name has "attention_mask" in it, in any case; else `none`.
  none,     ///< Only requests of equal size run together.
  zeros,    ///< The model's answers do not depend on zeros behind an input.
};

class run_end;

/// The shape of an input, as given by the user.
struct stated_shape {
  std::string input;
  std::vector<std::int64_t> shape;  ///< All dimensions; -1 leaves one as in the file.
};

/// How a model is loaded.
struct session_options {
  std::string name{};            ///< Name in the interface; empty: file name, no suffix.
  std::uint32_t threads = 1;     ///< Threads per run, the caller included; 1 to 1024.
  std::uint32_t max_size = 512;  ///< Largest length of the one dynamic dimension that is not the
                                 ///< batch's; 1 to 2^20. Nothing where there is none.
  std::size_t max_bytes = (std::size_t{1} << 31U) - 1;  ///< Largest file; default: ONNX's limit.
  std::optional<bool> has_batch{};  ///< Whether dimension 0 is the batch's; none: by the shapes.
  padding pads = padding::by_name;
  /// Whether a model whose tensors cannot be rows of requests is accepted, as `is_open`.
  bool may_be_open = false;
  /// Makes the model open although its tensors could be rows, for this reason; empty: no effect.
  std::string why_open{};
  /// Lengths for dimensions that the file leaves open. Entries for other dimensions, for unknown
  /// inputs and for inputs of another rank are ignored.
  std::vector<stated_shape> shapes{};
  /// The GPU that computes, by CUDA's number, with ONNX Runtime's CUDA provider; none: the CPU.
  /// Operators that the provider lacks run on the CPU. Matrix products may round to TF32, as ONNX
  /// Runtime's do.
  std::optional<unsigned> cuda_device{};
  /// Outputs to compute, in any order; empty: all. The others may be of any kind.
  std::vector<std::string> outputs{};
  /// Numbers of rows, ascending, each at least 1: the model is loaded once for each and runs with
  /// no other, so that nothing is planned anew when batches change. Fewer rows are padded with
  /// copies of the last one, more are run in parts, one after another. Empty: any number of rows,
  /// loaded once. No effect on a model without a batch.
  std::vector<std::uint32_t> batch_sizes{};
  /// The folder of a repository. The file, NAME/VERSION/FILE, is then opened below it: links are
  /// followed, but not out of it, and the file and its external data may have hard links in NAME
  /// alone. Empty: the file is opened as it is named.
  std::filesystem::path below{};
  /// Ends the runs on zeros that a construction makes, if by then `given_up` is set; or null.
  run_end* end = nullptr;
  const std::atomic<bool>* given_up = nullptr;
};

class session;

/// Ends runs early, from another thread. It serves the runs of one caller, one at a time. Thread
/// safety: `ask` from any thread.
class run_end {
 public:
  /// For sessions of a library.
  /// @throws resource_error If ONNX Runtime has no memory left.
  explicit run_end(std::shared_ptr<const library> of);
  explicit run_end(const session& of);
  ~run_end();
  run_end(const run_end&) = delete;
  run_end& operator=(const run_end&) = delete;

  /// Asks ONNX Runtime to end the run that is under way, if it has been given up: the run fails
  /// before its next operator.
  void ask() noexcept;

 private:
  friend class session;
  class state;
  std::unique_ptr<state> state_;
};

/// A model loaded into ONNX Runtime. Inputs and outputs are in memory of the host, also where a GPU
/// computes.
///
/// The batch: dimension 0 of all inputs and outputs, if it is dynamic in each and, where it has a
/// name, has one name. A model without one runs rows one by one. The size: any other dynamic
/// dimensions of inputs; all must have one name, or there must be one. Dynamic dimensions of
/// outputs that do not have that name are found out by running the model on zeros, twice: each must
/// be constant or the size. Elements are numbers of 8 to 64 bits, booleans, or strings. Sequences,
/// maps and other types are refused.
///
/// A model with other dynamic dimensions, with strings, or one that cannot be run on zeros, has no
/// rows. It is refused, unless it may be open: its interface then has all dimensions of its
/// tensors, -1 where they are open or not known, and each run has shapes of its own (`run_shaped`).
///
/// Thread safety: immutable; `run` from any threads at once. With `threads` of 1 it computes on its
/// caller alone, with more also on its own, which sleep between runs.
class session {
 public:
  /// @throws config_error If an option is outside its range; the file cannot be read, is larger
  /// than `max_bytes`, is no model that this ONNX Runtime understands, or names external data
  /// outside of its folder; or the interface is not one of those above. Names the file, and tensor
  /// and dimension.
  session(std::shared_ptr<const library> runtime, const std::filesystem::path& file,
          const session_options& options = {});
  /// Loads a model from bytes, which are not needed later. External data are refused.
  /// @throws config_error As above.
  session(std::shared_ptr<const library> runtime, std::span<const std::byte> model,
          const session_options& options = {});
  ~session();
  session(const session&) = delete;
  session& operator=(const session&) = delete;

  [[nodiscard]] const model_interface& interface() const noexcept;
  /// Whether `run` computes all rows at once.
  [[nodiscard]] bool has_batch() const noexcept;
  /// Whether rows may be shorter than the size that they are run at, with zeros behind them.
  [[nodiscard]] bool pads() const noexcept;

  /// Whether each run has shapes of its own: it has no rows, and `run` refuses it.
  [[nodiscard]] bool is_open() const noexcept { return !why_open().empty(); }
  /// Why it has no rows, on one line; empty if it has.
  [[nodiscard]] const std::string& why_open() const noexcept;
  /// For an open model: input shapes that it could compute, on zeros, when it was loaded; empty if
  /// it failed with all that were tried.
  [[nodiscard]] const std::vector<std::vector<std::int64_t>>& sample_shapes() const noexcept;

  /// Computes `rows` rows of `size` on the calling thread; returns when done. Each tensor is dense,
  /// rows × `tensor_info::bytes(size)`, in memory of the caller's, aligned for its elements;
  /// outputs are written there by the model, without a copy. Allocates as ONNX Runtime does.
  /// @param inputs In the order of the interface, as `outputs`. Not written to.
  /// @param size 1 to `max_size`; 1 where no tensor has a size.
  /// @throws config_error If the numbers of tensors, rows or size do not fit the interface.
  /// @throws device_error If it fails, with ONNX Runtime's words.
  void run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
           std::uint32_t rows, std::uint32_t size = 1) const;
  /// As above, but `end.ask()` ends it if by then it has been given up.
  /// @param given_up Whether it has; or null. @throws device_error At once if it has, too.
  void run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
           std::uint32_t rows, std::uint32_t size, run_end& end,
           const std::atomic<bool>* given_up) const;
  /// Runs an open model on inputs in the interface's order, each dense, aligned for its elements,
  /// and with as many elements as its shape says. Strings lie as `take_string` takes them; they are
  /// copied, each way. @returns All outputs, in memory that ONNX Runtime made for them, or that of
  /// an input, or, of strings, of their own.
  /// @throws config_error If it is not open, or the number of inputs is another.
  /// @throws device_error If an input has another rank or length than the file says, a length of 0,
  /// or another length than one of the same name; if strings are more, or fewer, than its shape
  /// says; or if the run fails, with ONNX Runtime's words.
  [[nodiscard]] std::vector<shaped_tensor> run_shaped(std::span<const shaped_tensor> inputs,
                                                      run_end& end,
                                                      const std::atomic<bool>* given_up) const;

 private:
  friend class run_end;
  [[nodiscard]] std::shared_ptr<const library> runtime() const noexcept;
  void run_rows(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                std::uint32_t rows, std::uint32_t size, const run_end* end) const;
  class state;
  std::unique_ptr<const state> state_;
};

/// Whether requests of a model may run among longer ones, given the author's choice.
/// @throws config_error If `asked` is `padding::zeros` though some tensor's open dimension is an
/// inner one, so that a short request does not lie at the start of a longer one's row: names it.
[[nodiscard]] bool pads(const model_interface& m, padding asked);

/// The outputs of a model as they appear in the rows of requests, found by running it on zeros,
/// twice, with different numbers of rows and sizes. Empty for an output that cannot be in a row:
/// one that is no tensor of plain numbers, or that does not have one part per request with a shape
/// that is constant or as long as the size.
/// @param options As of a session; `has_batch` is best given.
/// @throws config_error If the model cannot be loaded or run, or its inputs are not those of a
/// session.
[[nodiscard]] std::vector<std::optional<tensor_info>> describe_outputs(
    std::shared_ptr<const library> runtime, std::span<const std::byte> model,
    const session_options& options);

}  // namespace cohort::runtime::onnx
