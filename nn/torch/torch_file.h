#pragma once

#include <filesystem>

#include "tensor/state_dict.h"

namespace athanor::torch_file {

/// Whether a file looks like one of torch.save(): a zip file or a pickle. Throws IoError if it cannot be
/// opened.
bool is_torch_file(const std::filesystem::path& path);

/// Reads the tensors of a torch.save() file, `.pth` or `.pt`, of PyTorch 1.6 and later (a zip file) or of the
/// older form. They come from the saved dictionary or, if it has a dictionary under "state_dict", "model" or
/// "model_state_dict", from that. Other values are skipped. Names, layouts and dtypes (f64 f32 f16 bf16 i64
/// i32 u8; bool as u8) are the file's.
///
/// Nothing in the file is executed or trusted. A pickle that names anything but tensors and dictionaries is
/// refused, naming it; every size, stride and offset is checked. Tensors are views of the mapped file,
/// possibly strided. Storages misaligned for their dtype are copied, in total at most the size of the file.
/// Throws IoError naming the file, the byte and what was expected there.
StateDict load(const std::filesystem::path& path);

}  // namespace athanor::torch_file
