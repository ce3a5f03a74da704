//! Opens the desktop app's window. Knows nothing of what is in it.

use twoclock::store::Store;
use twoclock_desktop::app::App;

fn main() -> eframe::Result {
    let options = eframe::NativeOptions {
        viewport: eframe::egui::ViewportBuilder::default()
            .with_title("Twoclock")
            .with_inner_size([640.0, 400.0]),
        ..Default::default()
    };
    let app = App::new(Store::from_env());
    eframe::run_native("twoclock", options, Box::new(|_| Ok(Box::new(app))))
}
