#pragma once

#include <filesystem>

#include "tensor/state_dict.h"

namespace athanor::torch_file {

/// Whether a file looks like one of torch.save(): a zip file, or a pickle. Throws IoError where it cannot be
/// opened.
bool is_torch_file(const std::filesystem::path& path);

/// Reads the tensors of a file of torch.save(), `.pth` or `.pt`: of PyTorch 1.6 and later (a zip file), or of
/// the older form. They are those of the dictionary that was saved; where it has another one under
/// "state_dict", "model" or "model_state_dict", of that one. What is no tensor there is left out. Names,
/// layouts and dtypes (f64 f32 f16 bf16 i64 i32 u8; bool as u8) are the file's.
///
/// Nothing in the file is executed or trusted: a pickle that names anything but tensors and dictionaries is
/// refused by that name, and every size, stride and place is checked. Tensors are views of the mapped file,
/// perhaps strided; storages that are not aligned for their dtype are copied, all together no more bytes than
/// the file has. Throws IoError naming the file, the byte and what was expected there.
StateDict load(const std::filesystem::path& path);

}  // namespace athanor::torch_file
